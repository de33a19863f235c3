"""The protocol ``convnet-accuracy`` on a few generated images: one record a measurement, appended."""

import numpy as np
import pytest

import hcdc
import hcdc.condensers._dc as dc
import hcdc.condensers._embeddings as embeddings
from hcdc.core import records
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.datasets import record_path
from hcdc.experiments._command import kept_file, made_copy
from hcdc.experiments.reproductions import convnet_accuracy as protocol
from hcdc.experiments.reproductions import nas201, reproduce
from hcdc.tasks import ImageTask

QUICK = {"iterations": 4, "outer": 2, "inner": 1, "batch_real": 4, "batch_train": 4, "width": 2}


def image_file(path, shift=0):
    """Three classes of 8 x 8 grey noise around their own level; another ``shift`` gives other images."""
    rng = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 18), ("val", 12), ("test", 9)):
        y = np.arange(count) % 3
        x = rng.integers(0, 60, (count, 8, 8, 1)) + 60 * y[:, None, None, None] + shift
        parts |= {f"x_{name}": x.astype(np.uint8), f"y_{name}": y}
    np.savez(path, **parts)
    return path


@pytest.fixture
def images(tmp_path):
    return image_file(tmp_path / "levels.npz")


@pytest.fixture
def sums(monkeypatch):
    """In place of a measurement, the sum of the pixels: it says which images would have been measured."""
    calls = []

    def noted(small, data, networks, **options):
        calls.append({"networks": networks, **options})
        return {"test_accuracy": float(small.x.double().sum())}

    monkeypatch.setattr(protocol, "convnet_accuracy", noted)
    monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)
    return calls


@pytest.fixture
def begun(monkeypatch):
    """The iterations of DC and DSA that were computed."""
    found = []
    begin = dc.Matching.begin
    monkeypatch.setattr(dc.Matching, "begin", lambda run, k: (found.append(k), begin(run, k))[1])
    return found


def run(images, methods, seeds=(0,), out="records.jsonl", options=None, **settings):
    """Run the units that the file lacks; returns all its records. ``options`` are those of every method."""
    file = images.with_name(out)
    given = {"per_class": 2, "val_per_class": 1, "networks": 2, "epochs": 0, **settings}
    given |= {"datasets": str(images), "methods": methods, "options": dict.fromkeys(methods, options or {})}
    reproduce(protocol.ConvNetAccuracy.at("smoke", given), list(seeds), file)
    return list(records.read(file))


def shown(found):
    return [(r["iteration"], r["test_accuracy"]) for r in found]


def test_a_record_says_what_was_measured(images):
    (found,) = run(images, ["random"], seeds=[3], epochs=2)
    task = ImageTask(hcdc.data(str(images)))
    small = hcdc.condensers.make_reducer("random").reduce(
        task, "train", 6, 3, progress=Progress(), checkpoint=Checkpoint(None)
    )
    wanted = hcdc.training.convnet_accuracy(small, task.data, 2, epochs=2, seed=3)
    assert {key: found.pop(key) for key in wanted} == wanted
    assert set(wanted) >= {"test_accuracy", "test_accuracies", "test_std"}
    assert found.pop("environment")["torch"]
    assert found.pop("condense_seconds") >= 0
    assert found.pop("seconds") > 0
    assert (found["unit"]["method"], found["unit"]["seed"]) == ("random", 3)
    assert found.pop("unit")["settings"]["epochs"] == 2
    assert found == {
        "protocol": "convnet-accuracy", "dataset": str(images), "method": "random", "per_class": 2,
        "seed": 3, "iteration": None, "settings": {}, "parts": 1,
    }  # fmt: skip


def test_one_record_a_method_and_seed_is_appended(images, sums):
    found = run(images, ["dc", "dsa"], seeds=[0, 1], options=QUICK)
    labels = [("dc", 0), ("dc", 1), ("dsa", 0), ("dsa", 1)]
    assert [(r["method"], r["seed"]) for r in found] == labels
    assert len({r["test_accuracy"] for r in found}) == 4
    assert [call["seed"] for call in sums] == [0, 1, 0, 1]
    assert len(run(images, ["random"])) == 5  # the others stay
    assert len(run(images, ["random"])) == 5  # and nothing is run twice


def test_augmentation_goes_with_the_method(images, sums):
    run(images, ["dc", "dsa"], options=QUICK)
    (last,) = run(images, ["dm"], options={"iterations": 2, "batch": 4, "width": 2})[2:]
    assert [call["augment"] for call in sums] == [False, True, True]
    assert all(call["epochs"] is None for call in sums)  # the published ones
    assert last["settings"]["iterations"] == 2
    assert last["settings"]["lr_img"] == 1.0


@pytest.mark.usefixtures("sums")
def test_gradient_matching_is_measured_on_its_way(images):
    found = run(images, ["dc"], options=QUICK, every=2)
    assert [r["iteration"] for r in found] == [0, 2, None]
    values = [r["test_accuracy"] for r in found]
    assert len(set(values)) == 3
    seconds = [r["condense_seconds"] for r in found]
    assert seconds == sorted(seconds)
    (whole,) = run(images, ["dc"], options=QUICK, out="whole.jsonl")
    assert shown([whole]) == [(None, values[2])]
    (last,) = run(images, ["random"], every=2)[3:]  # it has no iterations
    assert last["iteration"] is None


def test_trajectory_matching_is_measured_at_the_step_size_it_has_learned(images, sums):
    options = {"iterations": 3, "experts": 1, "start_epochs": 1, "target_epochs": 1, "student_steps": 2}
    options |= {"width": 4, "step_size": 0.02, "lr_step": 1e-5, "expert_batch": 6}
    found = run(images, ["tm"], options=options, every=1)
    assert [r["iteration"] for r in found] == [1, 2, None]
    sizes = [r["step_size"] for r in found]
    assert len({*sizes, 0.02}) == 4
    assert [call["recipe"].lr for call in sums] == pytest.approx(sizes, abs=1e-5)
    assert len({r["test_accuracy"] for r in found}) == 3
    (last,) = run(images, ["tm"], options=options, out="last.jsonl")
    assert (last["iteration"], last["step_size"]) == (None, sizes[-1])
    run(images, ["dm"], options={"iterations": 1, "width": 4})
    assert sums[-1]["recipe"].lr == 0.01
    (file,) = (images.parent / "last-copies").glob("*.hcdc")
    (stored,) = run(images, [str(file)], out="files.jsonl")
    assert stored["step_size"] == sizes[-1] == pytest.approx(sums[-1]["recipe"].lr, abs=1e-5)


def test_no_method_uses_what_another_has_trained(images, monkeypatch):
    trained = []
    train = embeddings.train_convnets
    monkeypatch.setattr(embeddings, "train_convnets", lambda *a, **k: (trained.append(1), train(*a, **k))[1])
    monkeypatch.setattr(protocol, "convnet_accuracy", lambda *a, **k: {"test_accuracy": 0.5})
    run(images, ["kcenter", "herding"], options={"steps": 2, "hidden": 4})
    assert len(trained) == 2


def test_a_run_that_is_cut_off_continues(images, sums, begun, monkeypatch):
    whole = shown(run(images, ["dc"], options=QUICK, every=1, out="whole.jsonl"))
    assert begun == [0, 1, 2, 3]
    measure = protocol.convnet_accuracy

    def cut(*given, **options):
        if len(sums) == len(whole) + 2:
            raise KeyboardInterrupt
        return measure(*given, **options)

    monkeypatch.setattr(protocol, "convnet_accuracy", cut)
    with pytest.raises(KeyboardInterrupt):
        run(images, ["dc"], options=QUICK, every=1)
    assert begun[4:] == [0, 1]
    assert not images.with_name("records.jsonl").exists()
    monkeypatch.setattr(protocol, "convnet_accuracy", measure)
    found = run(images, ["dc"], options=QUICK, every=1)
    assert begun[6:] == [2, 3]
    assert {r["parts"] for r in found} == {len(found)}
    assert shown(found)[-1] == whole[-1]


@pytest.mark.usefixtures("sums")
def test_a_checkpoint_of_another_run_is_not_taken(images, begun):
    run(images, ["dc"], options=QUICK)
    for changed in ({"seeds": [1]}, {"per_class": 3}, {"options": {**QUICK, "outer": 1}}):
        begun.clear()
        run(images, ["dc"], **{"options": QUICK, **changed})
        assert begun == [0, 1, 2, 3], changed


@pytest.mark.usefixtures("sums")
def test_a_checkpoint_of_other_images_is_not_taken(images):
    run(images, ["dc"], options=QUICK)
    other = image_file(images.with_name("other.npz"), shift=20)
    *_, one = run(other, ["dc"], options=QUICK)
    *_, two = run(other, ["dc"], options=QUICK, out="two.jsonl")
    assert one["test_accuracy"] == two["test_accuracy"]


@pytest.mark.parametrize(
    ("methods", "arguments", "message"),
    [
        (["random", "hardening"], {}, "'hardening' is not known; did you mean 'herding'"),
        (["random"], {"options": {"iterations": 3}}, "'random' has no settings, but 'iterations'"),
        (["dc"], {"options": {"iterations": 0}}, "'iterations' of method 'dc' must be at least 1, got 0"),
        (["random"], {"per_class": 0}, "setting 'per_class' of reproduction 'convnet-accuracy' must be at"),
        (["random"], {"networks": 0}, "setting 'networks' .* at least 1"),
        (["dc"], {"every": -2, "options": QUICK}, "setting 'every' .* at least 0"),
        (["random"], {"per_class": 7}, "train_size 21: the original has only 18"),
        (["random"], {"val_per_class": 20}, "val_size 60: the original has only 12 such examples"),
        (["gcond"], {}, "'gcond' condenses graphs"),
    ],
)
def test_bad_input_is_refused_before_any_work(images, sums, methods, arguments, message):
    with pytest.raises(InputError, match=message):
        run(images, methods, **arguments)
    assert not sums
    assert not images.with_name("records.jsonl").exists()


def test_a_graph_is_refused(tmp_path):
    what = protocol.ConvNetAccuracy.at("smoke", {"datasets": "citeseer-embedded"})
    with pytest.raises(InputError, match="data is GraphData, not images"):
        reproduce(what, [0], tmp_path / "records.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "options", "every"),
    [("herding", {"steps": 5, "hidden": 4}, 0), ("dc", QUICK, 2)],
)
@pytest.mark.usefixtures("sums")
def test_a_kept_set_is_the_copy_that_nas201_would_make(method, options, every, images):
    """The same file under the same name; with other settings, sizes or seeds there is none."""
    folder, task = images.with_name("records-copies"), ImageTask(hcdc.data(str(images)))
    given = {"per_class": 5, "val_per_class": 2, "options": options, "every": every}
    found = run(images, [method], seeds=[4], **given)
    planned = nas201.copy_plan(task, method, 4, (15, 6), options)
    file = kept_file(folder, planned)
    assert {file, record_path(file)} <= set(folder.iterdir())
    assert file.read_bytes() == planned.run().to_bytes()
    kept = made_copy(planned, folder, "cpu")
    assert float(kept.train.x.double().sum()) == pytest.approx(found[-1]["test_accuracy"], abs=1e-4)
    assert kept.record["condense_seconds"] == kept.train_seconds
    assert kept.train_seconds == pytest.approx(found[-1]["condense_seconds"], abs=1e-4)
    assert kept.record["environment"]["torch"]
    others = [(5, (15, 6), options), (4, (15, 9), options), (4, (15, 6), {**options, next(iter(options)): 3})]
    for other in others:
        assert not kept_file(folder, nas201.copy_plan(task, method, *other)).exists()


def condensed(images, name, method, seed):
    task = ImageTask(hcdc.data(str(images)))
    space = hcdc.spaces.NASBench201(channels=2)
    small = hcdc.condense(task, space, method, train_size=6, val_size=3, seed=seed, val_method="random")
    return small, str(small.save(images.with_name(name)))


def test_files_are_measured_as_they_are(images, sums):
    """Nothing is condensed again; the record says what the file says."""
    (one, first), (two, second) = (
        condensed(images, "a.hcdc", "random", 3),
        condensed(images, "b.hcdc", "kcenter", 4),
    )
    found = run(images, [first, second], networks=2, epochs=5)
    assert [(r["method"], r["seed"], r["per_class"], r["iteration"]) for r in found] == [
        ("random", 3, 2, None),
        ("kcenter", 4, 2, None),
    ]
    for r, small in zip(found, (one, two)):
        assert r["protocol"] == "convnet-accuracy"
        assert r["test_accuracy"] == pytest.approx(float(small.train.x.double().sum()), abs=1e-5)
        assert r["settings"] == small.meta["settings"]["train"]
    assert [(call["networks"], call["epochs"], call["seed"]) for call in sums] == [(2, 5, 3), (2, 5, 4)]


def test_a_copy_of_other_data_is_refused_before_any_is_measured(images, sums, tmp_path):
    _, mine = condensed(images, "a.hcdc", "random", 0)
    (tmp_path / "others").mkdir()
    _, other = condensed(image_file(tmp_path / "others" / "levels.npz", shift=9), "b.hcdc", "random", 0)
    for files, words in (
        ([mine, other], "'.*b.hcdc' was not made from"),
        ([mine, str(tmp_path / "none.hcdc")], "none.hcdc' does not exist"),
    ):
        with pytest.raises(InputError, match=words):
            run(images, files)
    assert sums == []
    assert not images.with_name("records.jsonl").exists()
