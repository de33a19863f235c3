"""The protocol ``convnet-accuracy`` on a few generated images: one record a measurement, appended."""

import dataclasses
import sys

import numpy as np
import pytest

import hcdc
import hcdc.condensers._dc as dc
import hcdc.condensers._embeddings as embeddings
from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.datasets import record_path
from hcdc.experiments import convnet_accuracy as protocol
from hcdc.experiments import nas201
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


def run(images, methods, seeds=(0,), **arguments):
    """Run the protocol; returns all records of the file."""
    out = images.with_name("records.jsonl")
    protocol.run(str(images), methods, list(seeds), str(out), **{"per_class": 2, "networks": 2, **arguments})
    return list(records.read(out))


def shown(found):
    return [(r["iteration"], r["test_accuracy"]) for r in found]


def test_a_record_says_what_was_measured(images):
    (found,) = run(images, ["random"], seeds=[3], epochs=2)
    task = ImageTask(hcdc.data(str(images)), "convnet")
    ((_, small, _),) = protocol.sets(task, "random", 6, 3, {}, 0, None)
    wanted = hcdc.training.convnet_accuracy(small, task.data, 2, epochs=2, seed=3)
    assert {key: found.pop(key) for key in wanted} == wanted
    assert set(wanted) >= {"test_accuracy", "test_accuracies", "test_std"}
    assert found.pop("environment")["torch"]
    assert found.pop("condense_seconds") >= 0
    assert found == {
        "protocol": "convnet-accuracy", "dataset": str(images), "method": "random", "per_class": 2,
        "seed": 3, "iteration": None, "settings": {},
    }  # fmt: skip


def test_one_record_a_method_and_seed_is_appended(images, sums):
    found = run(images, ["dc", "dsa"], seeds=[0, 1], options=QUICK)
    labels = [("dc", 0), ("dc", 1), ("dsa", 0), ("dsa", 1)]
    assert [(r["method"], r["seed"]) for r in found] == labels
    assert len({r["test_accuracy"] for r in found}) == 4
    assert [call["seed"] for call in sums] == [0, 1, 0, 1]
    assert len(run(images, ["random"])) == 5  # every attempt stays


def test_augmentation_goes_with_the_method(images, sums):
    run(images, ["dc", "dsa"], options=QUICK)
    (last,) = run(images, ["dm"], options={"iterations": 2, "batch": 4, "width": 2})[2:]
    assert [call["augment"] for call in sums] == [False, True, True]
    assert all(call["epochs"] is None for call in sums)  # the published ones
    assert last["settings"]["iterations"] == 2
    assert last["settings"]["lr_img"] == 1.0


def test_a_preset_of_the_data_set_is_taken(images):
    own = ImageTask(hcdc.data(str(images)), "convnet")
    named = ImageTask(dataclasses.replace(own.data, name="cifar100"), "convnet")
    assert protocol.reducer_for(named, "tm", 6, {}).student_steps == 80
    assert protocol.reducer_for(own, "tm", 6, {}).student_steps == 30
    assert protocol.reducer_for(named, "tm", 6, {"student_steps": 5}).student_steps == 5


def test_coresets_of_images_without_a_preset_embed_by_a_convnet(images):
    """The default of K-Center is for graphs: a GCN with 256 hidden units."""
    own = ImageTask(hcdc.data(str(images)), "convnet")
    assert protocol.reducer_for(own, "kcenter", 6, {}).hidden == 128


@pytest.mark.usefixtures("sums")
def test_gradient_matching_is_measured_on_its_way(images):
    found = run(images, ["dc"], options=QUICK, every=2)
    assert [r["iteration"] for r in found] == [0, 2, 4, None]
    values = [r["test_accuracy"] for r in found]
    assert len(set(values[:3])) == 3
    assert values[3] == values[2]
    seconds = [r["condense_seconds"] for r in found]
    assert seconds == sorted(seconds)
    (whole,) = run(images, ["dc"], options=QUICK)[4:]
    assert shown([whole]) == [(None, values[3])]
    (last,) = run(images, ["random"], every=2)[5:]  # it has no iterations
    assert last["iteration"] is None


def test_trajectory_matching_is_measured_at_the_step_size_it_has_learned(images, sums, caplog):
    options = {"iterations": 3, "experts": 1, "start_epochs": 1, "target_epochs": 1, "student_steps": 2}
    options |= {"width": 4, "step_size": 0.02, "lr_step": 1e-5, "expert_batch": 6}
    found = run(images, ["tm"], options=options, every=1)
    assert [r["iteration"] for r in found] == [1, 2, None]
    sizes = [r["step_size"] for r in found]
    assert len({*sizes, 0.02}) == 4
    assert [call["recipe"].lr for call in sums] == sizes
    assert len({r["test_accuracy"] for r in found}) == 3
    (last,) = run(images, ["tm"], options=options)[3:]
    assert (last["iteration"], last["step_size"]) == (None, sizes[-1])
    run(images, ["dm"], options={"iterations": 1, "width": 4})
    assert sums[-1]["recipe"].lr == 0.01
    run(images, ["tm"], options=options, keep=str(images.parent / "kept"), val_per_class=2)
    (file,) = (images.parent / "kept").glob("*.hcdc")
    out = str(images.with_name("copies.jsonl"))
    protocol.run_copies(str(images), [str(file)], out, device="cpu")
    assert sums[-1]["recipe"].lr == next(iter(records.read(out)))["step_size"] == sizes[-1]
    record_path(file).unlink()
    protocol.run_copies(str(images), [str(file)], out, device="cpu")
    assert sums[-1]["recipe"].lr == 0.01
    assert "no record of the step size that it has learned" in caplog.text


def test_no_method_uses_what_another_has_trained(images, monkeypatch):
    trained = []
    train = embeddings.train_convnets
    monkeypatch.setattr(embeddings, "train_convnets", lambda *a, **k: (trained.append(1), train(*a, **k))[1])
    monkeypatch.setattr(protocol, "convnet_accuracy", lambda *a, **k: {"test_accuracy": 0.5})
    run(images, ["kcenter", "herding"], options={"steps": 2, "hidden": 4})
    assert len(trained) == 2


def test_a_run_that_is_cut_off_continues(images, sums, begun, monkeypatch):
    whole = shown(run(images, ["dc"], options=QUICK, every=1))
    assert begun == [0, 1, 2, 3]
    folder = str(images.with_name("checkpoints"))
    measure = protocol.convnet_accuracy

    def cut(*given, **options):
        if len(sums) == len(whole) + 2:
            raise KeyboardInterrupt
        return measure(*given, **options)

    monkeypatch.setattr(protocol, "convnet_accuracy", cut)
    with pytest.raises(KeyboardInterrupt):
        run(images, ["dc"], options=QUICK, every=1, folder=folder)
    assert begun[4:] == [0, 1]
    monkeypatch.setattr(protocol, "convnet_accuracy", measure)
    found = run(images, ["dc"], options=QUICK, every=1, folder=folder)
    assert begun[6:] == [2, 3]
    assert shown(found[len(whole) :]) == whole
    again = run(images, ["dc"], options=QUICK, folder=folder)
    assert len(begun) == 8  # nothing was left to do
    assert shown(again[-1:]) == whole[-1:]


@pytest.mark.usefixtures("sums")
def test_a_checkpoint_of_another_run_is_not_taken(images, begun):
    folder = str(images.with_name("checkpoints"))
    run(images, ["dc"], options=QUICK, folder=folder)
    for changed in ({"seeds": [1]}, {"per_class": 3}, {"options": {**QUICK, "outer": 1}}):
        begun.clear()
        run(images, ["dc"], **{"options": QUICK, "folder": folder, **changed})
        assert begun == [0, 1, 2, 3], changed


@pytest.mark.usefixtures("sums")
def test_a_checkpoint_of_other_images_is_not_taken(images):
    folder = str(images.with_name("checkpoints"))
    run(images, ["dc"], options=QUICK, folder=folder)
    other = image_file(images.with_name("other.npz"), shift=20)
    *_, one = run(other, ["dc"], options=QUICK, folder=folder)
    *_, two = run(other, ["dc"], options=QUICK)
    assert one["test_accuracy"] == two["test_accuracy"]


@pytest.mark.parametrize(
    ("methods", "arguments", "message"),
    [
        (["random", "hardening"], {}, "'hardening' is not known; did you mean 'herding'"),
        (["random"], {"options": {"iterations": 3}}, "'random' has no settings, but 'iterations'"),
        (["dc"], {"options": {"iterations": 0}}, "'iterations' of method 'dc' must be at least 1, got 0"),
        (["random"], {"per_class": 0}, "--per-class 0: at least 1 is needed"),
        (["random"], {"networks": 0}, "--networks 0: at least 1"),
        (["random"], {"epochs": 0}, "--epochs 0: at least 1"),
        (["dc"], {"every": -2, "options": QUICK}, "--every -2: give a number of iterations"),
        (["random"], {"per_class": 7}, "train_size 21: the original has only 18"),
        (["gcond"], {}, "'gcond' condenses graphs"),
    ],
)
def test_bad_input_is_refused_before_any_work(images, sums, methods, arguments, message):
    with pytest.raises(InputError, match=message):
        run(images, methods, **arguments)
    assert not sums
    assert not images.with_name("records.jsonl").exists()


def test_a_graph_is_refused(tmp_path):
    with pytest.raises(InputError, match="--dataset 'citeseer-embedded' has no images"):
        protocol.run("citeseer-embedded", ["random"], [0], str(tmp_path / "records.jsonl"))
    assert not list(tmp_path.iterdir())


def test_the_command(images, sums, monkeypatch):
    out, folder = images.with_name("records.jsonl"), images.with_name("checkpoints")
    command = [
        "convnet_accuracy", "--dataset", str(images), "--methods", "dc", "--seeds", "4,5", "--per-class", "5",
        "--networks", "3", "--iterations", "1", "--every", "1", "--epochs", "7", "--checkpoint", str(folder),
        "--keep", str(images.with_name("kept")), "--val-per-class", "1", "--out", str(out),
        "--device", "cpu",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(
        protocol, "reducer_for", lambda task, method, size, options: dc.DC(**{**QUICK, **options})
    )
    protocol.main()
    found = list(records.read(out))
    assert [(r["seed"], r["iteration"]) for r in found] == [(s, i) for s in (4, 5) for i in (0, 1, None)]
    assert all(r["per_class"] == 5 for r in found)
    assert all((call["networks"], call["epochs"]) == (3, 7) for call in sums)
    assert len(list(folder.rglob("*.checkpoint"))) == 2
    kept = sorted(images.with_name("kept").glob("*.hcdc"))
    assert [file.name[:5] for file in kept] == ["dc-4-", "dc-5-"]
    assert {len(hcdc.CondensedDataset.load(file).val) for file in kept} == {3}  # one a class


def test_kept_copies_have_as_many_validation_images_as_those_of_nas201(monkeypatch):
    """Where nothing is said, 20 a class in both."""
    asked = []
    monkeypatch.setattr(protocol, "run", lambda *given, **options: asked.append(options["val_per_class"]))
    monkeypatch.setattr(sys, "argv", ["convnet_accuracy", "--keep", "kept", "--out", "records.jsonl"])
    protocol.main()
    monkeypatch.setattr(nas201, "Protocol", lambda *given: asked.append(given[4]))
    monkeypatch.setattr(sys, "argv", ["nas201", "--table", "none.csv", "--out", "records.jsonl"])
    with pytest.raises(AttributeError):  # there is no protocol to go on with
        nas201.main()
    assert asked == [20, 20]


@pytest.mark.parametrize(
    ("method", "options", "every"),
    [
        ("random", {}, 0),
        ("herding", {"steps": 5, "hidden": 4}, 0),
        ("dm", {"iterations": 2, "batch": 4, "width": 2}, 0),
        ("dc", QUICK, 2),
    ],
)
def test_a_kept_set_is_the_copy_that_nas201_would_make(method, options, every, images, sums, monkeypatch):
    """The same file under the same name; with other settings or sizes or of another seed there is none."""
    folder = images.with_name("kept")
    given = {"per_class": 5, "val_per_class": 2, "options": options, "every": every, "keep": str(folder)}
    found = run(images, [method], seeds=[4], **given)
    monkeypatch.setattr(nas201, "NASBench201Table", lambda path: path)
    other = nas201.Protocol(str(images), "none.csv", "cifar10", 5, 2, 3, 2, images.with_name("out"), "cpu")
    other.options[method] = options
    name = nas201.kept_name(hcdc.condensers.plan(**other.arguments(method, 4)), method, 4)
    assert sorted(file.name for file in folder.iterdir()) == [name, record_path(name).name]
    assert (folder / name).read_bytes() == hcdc.condense(**other.arguments(method, 4)).to_bytes()
    monkeypatch.setattr(nas201, "condense", lambda **_: pytest.fail("made again"))
    kept = other.made(method, 4, folder)
    assert isinstance(kept, hcdc.CondensedDataset)
    assert (len(kept.train), len(kept.val)) == (15, 6)
    assert kept.meta["train_method"] == method
    assert float(kept.train.x.double().sum()) == found[-1]["test_accuracy"]
    assert kept.record["condense_seconds"] == found[-1]["condense_seconds"]
    assert kept.record["environment"]["torch"]
    with pytest.raises(pytest.fail.Exception, match="made again"):
        other.made(method, 5, folder)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        other.made(method, 4, folder, (15, 9))
    if options:
        other.options[method] = {**options, next(iter(options)): 3}
        with pytest.raises(pytest.fail.Exception, match="made again"):
            other.made(method, 4, folder)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "val_size 60: the original has only 12 such examples"),  # 20 a class
        ({"val_per_class": 5}, "val_size 15: the original has only 12"),
        ({"val_per_class": 0}, "val_size 0: there are 3 classes"),
    ],
)
def test_a_copy_that_cannot_be_is_refused_before_any_work(given, words, images, monkeypatch):
    assert len(run(images, ["random"], **given)) == 1  # it need not be kept
    monkeypatch.setattr(protocol, "sets", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(InputError, match=words):
        run(images, ["random"], keep=str(images.with_name("kept")), **given)
    assert not images.with_name("kept").exists()


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
    out = str(images.with_name("records.jsonl"))
    protocol.run_copies(str(images), [first, second], out, networks=2, epochs=5, device="cpu")
    found = list(records.read(out))
    assert [(r["method"], r["seed"], r["per_class"], r["iteration"]) for r in found] == [
        ("random", 3, 2, None),
        ("kcenter", 4, 2, None),
    ]
    for r, small in zip(found, (one, two)):
        assert r["protocol"] == "convnet-accuracy"
        assert r["test_accuracy"] == pytest.approx(float(small.train.x.double().sum()))
        assert r["settings"] == small.meta["settings"]["train"]
    assert [(call["networks"], call["epochs"], call["seed"]) for call in sums] == [(2, 5, 3), (2, 5, 4)]


def test_a_copy_of_other_data_is_refused_before_any_is_measured(images, sums, tmp_path):
    _, mine = condensed(images, "a.hcdc", "random", 0)
    (tmp_path / "others").mkdir()
    _, other = condensed(image_file(tmp_path / "others" / "levels.npz", shift=9), "b.hcdc", "random", 0)
    out = tmp_path / "records.jsonl"
    for files, words in (
        ([mine, other], "'.*b.hcdc' is a copy of other data than"),
        ([mine, str(tmp_path / "none.hcdc")], "none.hcdc' does not exist"),
    ):
        with pytest.raises(InputError, match=words):
            protocol.run_copies(str(images), files, str(out), device="cpu")
    with pytest.raises(InputError, match="'embedded' has no images"):
        protocol.run_copies("embedded", [mine], str(out), device="cpu")
    assert sums == []
    assert not out.exists()
