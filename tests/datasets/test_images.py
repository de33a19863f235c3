"""Images: every road in, the split, the channels, and every refusal in one sentence."""

import dataclasses
import hashlib
import logging
import os
import re
import tarfile

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from hcdc.core.errors import InputError
from hcdc.datasets import (
    ImageData,
    Images,
    TableData,
    _image_files,
    _named_images,
    channel_statistics,
    data,
    normalised,
    reopen,
)
from hcdc.datasets._image_data import smaller


def pixels(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def numbers(count, classes=3):
    return np.arange(count) % classes


def refused(*args, **kwargs):
    with pytest.raises(InputError) as error:
        data(*args, **kwargs)
    text = str(error.value)
    assert "\n" not in text
    return text


def rows(images):
    """Images and labels as a sorted list, to compare sets of them."""
    return sorted((x.numpy().tobytes(), int(y)) for x, y in zip(images.x, images.y))


def together(found, *parts):
    return sorted(row for part in parts for row in rows(getattr(found, part)))


# --- the types ------------------------------------------------------------------------------------------


def test_images_carry_weights_and_move():
    images = Images(torch.zeros(4, 3, 2, 2), torch.arange(4), torch.ones(4))
    assert len(images) == 4
    moved = images.to("meta")
    assert {moved.x.device.type, moved.y.device.type, moved.weight.device.type} == {"meta"}
    assert Images(images.x, images.y).to("meta").weight is None
    whole = data((torch.from_numpy(pixels(30, 3, 4, 4)), torch.from_numpy(numbers(30)))).to("meta")
    assert {whole.train.x.device.type, whole.test.y.device.type, whole.std.device.type} == {"meta"}
    assert whole.train.x.dtype == torch.uint8
    assert (whole.kind, whole.shape) == ("image", (3, 4, 4))


def test_channels_are_measured_on_training_images_alone():
    x, y = pixels(40, 3, 4, 4) // np.array([1, 2, 4], np.uint8)[:, None, None], numbers(40)
    found = data((x, y), split=(range(20), range(20, 30), range(30, 40)))
    train = torch.from_numpy(x[:20]).double() / 255
    assert torch.allclose(found.mean.double(), train.mean((0, 2, 3)), atol=1e-7)
    assert torch.allclose(found.std.double(), train.std((0, 2, 3), correction=0), atol=1e-7)
    seen = found.normalised(found.train.x).double()
    assert seen.mean((0, 2, 3)).abs().max() < 1e-6
    assert (seen.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6
    assert found.normalised(found.train.x).dtype == torch.float32


def test_statistics_of_floats_and_of_constant_channels():
    x = torch.randn(5000, 3, 2, 2, generator=torch.Generator().manual_seed(0)) + 3
    x[:, 1] = 0.3
    mean, std = channel_statistics(x)
    assert torch.allclose(mean.double(), x.double().mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(std[[0, 2]].double(), x[:, [0, 2]].double().std((0, 2, 3), correction=0), atol=1e-6)
    assert std[1] == 1, "a constant channel is shifted, not blown up"
    assert normalised(x, mean, std)[:, 1].abs().max() < 1e-6
    assert torch.equal(channel_statistics(torch.full((3, 1, 2, 2), 51, dtype=torch.uint8))[1], torch.ones(1))
    double = normalised(x.double(), mean, std)
    assert double.dtype == torch.float64, "floating-point images keep their precision"


def test_fingerprint_sees_pixels_labels_type_and_split():
    x, y = pixels(30, 1, 4, 4), numbers(30)
    one = data((x, y))
    assert data((x.copy(), y.astype(np.uint8))).fingerprint() == one.fingerprint()
    other = x.copy()
    other[7, 0, 1, 1] ^= 1
    found = {
        data((other, y)).fingerprint(),
        data((x, (y + 1) % 3)).fingerprint(),
        data((x.astype(np.float32), y)).fingerprint(),
        data((x, y), seed=1).fingerprint(),
        one.fingerprint(),
    }
    assert len(found) == 5


# --- splits ---------------------------------------------------------------------------------------------


def test_a_pool_is_split_class_by_class(caplog):
    x, y = pixels(100, 3, 4, 4), np.repeat([0, 1, 2], [80, 17, 3])
    with caplog.at_level(logging.INFO, "hcdc"):
        found = data((x, y), seed=5)
    assert np.bincount(found.test.y).tolist() == [16, 3, 1]
    assert np.bincount(found.val.y).tolist() == [6, 1, 1]
    assert np.bincount(found.train.y).tolist() == [58, 13, 1]
    everything = sorted((a.tobytes(), int(b)) for a, b in zip(x, y))
    assert together(found, "train", "val", "test") == everything
    assert "seed 5: 72 / 8 / 20 images" in found.split
    assert found.split in caplog.text
    assert data((x, y), seed=5).fingerprint() == found.fingerprint()
    assert data((x, y), seed=6).fingerprint() != found.fingerprint()


def test_a_split_of_the_source_stays_unless_told():
    parts = {
        part: (pixels(m, 3, 4, 4, seed=m), numbers(m)) for part, m in (("train", 30), ("val", 6), ("test", 9))
    }
    found = data(parts)
    for part, (x, y) in parts.items():
        images = getattr(found, part)
        assert torch.equal(images.x, torch.from_numpy(x))
        assert images.y.tolist() == y.tolist()
    assert found.split == "the split of the source: 30 / 6 / 9 images"
    again = data(parts, split="seeded")
    assert torch.equal(again.test.x, found.test.x), "a test part is never drawn from again"
    assert together(again, "train", "val") == together(found, "train", "val")
    assert again.fingerprint() != found.fingerprint()
    given = data(parts, split=(range(36, 45), range(6), range(6, 36)))
    assert torch.equal(given.train.x, found.test.x), "positions count train, then val, then test"
    parts["validation"] = parts.pop("val")
    assert data(parts).fingerprint() == found.fingerprint()


# --- CIFAR ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_cifar(monkeypatch):
    """Files as `write_cifar10` and `write_cifar100` write them pass for whole ones."""
    for name, count in (("cifar10", 20), ("cifar100", 300)):
        whole = _named_images.ARCHIVES[name]
        small = dataclasses.replace(whole, train_images=count, test_images=count)
        monkeypatch.setitem(_named_images.ARCHIVES, name, small)


def write_cifar10(folder, each=20, classes=10):
    folder = folder / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for k, file in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        x, y = pixels(each, 3, 32, 32, seed=k), (numbers(each, classes) + k) % classes
        (folder / file).write_bytes(b"".join(bytes([c]) + a.tobytes() for a, c in zip(x, y)))
        written[file] = (x, y)
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"[:10]) + "\n\n")
    return written


def write_cifar100(folder, count=300):
    folder = folder / "cifar-100-binary"
    folder.mkdir(parents=True)
    written = {}
    for k, file in enumerate(["train.bin", "test.bin"]):
        x, y = pixels(count, 3, 32, 32, seed=k), numbers(count, 100)
        (folder / file).write_bytes(b"".join(bytes([c % 20, c]) + a.tobytes() for a, c in zip(x, y)))
        written[file] = (x, y)
    (folder / "fine_label_names.txt").write_text("".join(f"kind{c}\n" for c in range(100)))
    return written


@pytest.mark.usefixtures("small_cifar")
def test_cifar10_binary_files(tmp_path, monkeypatch):
    written = write_cifar10(tmp_path)
    monkeypatch.setenv("HCDC_DATA", str(tmp_path))
    found = data("CIFAR10", seed=3)
    assert (found.name, found.source, found.num_classes) == ("cifar10", "cifar", 10)
    assert found.class_names == tuple("abcdefghij")
    assert found.origin == {"source": "cifar10", "seed": 3}
    x, y = written["test_batch.bin"]
    assert torch.equal(found.test.x, torch.from_numpy(x))
    assert found.test.y.tolist() == y.tolist()
    expected = sorted(
        (a.tobytes(), int(b)) for file in written if file != "test_batch.bin" for a, b in zip(*written[file])
    )
    assert together(found, "train", "val") == expected
    assert len(found.val) == 20
    assert "the last 20 (20%) of a seeded shuffle" in found.split
    assert rows(data("cifar10", seed=4).val) != rows(found.val)
    last = written["data_batch_5.bin"]
    assert rows(found.val) != sorted((a.tobytes(), int(b)) for a, b in zip(*last)), "shuffled, not the tail"
    assert reopen(found.describe()).fingerprint() == found.fingerprint()


@pytest.mark.usefixtures("small_cifar")
def test_cifar100_takes_fine_labels(tmp_path):
    written = write_cifar100(tmp_path)
    found = data("cifar100", root=tmp_path)
    assert found.test.y.tolist() == written["test.bin"][1].tolist()
    assert torch.equal(found.test.x, torch.from_numpy(written["test.bin"][0]))
    assert np.bincount(found.val.y).tolist() == [1] * 100, "10 % of 3 images, at least 1"
    assert found.class_names[99] == "kind99"


@pytest.mark.usefixtures("small_cifar")
def test_damaged_cifar_is_refused(tmp_path):
    write_cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    assert "is not a whole number of records of 3073 bytes" in refused("cifar10", root=tmp_path)
    file.write_bytes(content[: 5 * 3073])
    text = refused("cifar10", root=tmp_path)
    assert f"'{file}' has 5 images, but the official file has 20" in text
    file.write_bytes(b"\x0a" + content[1:])
    assert "label 10 is out of range; 0 .. 9 is allowed" in refused("cifar10", root=tmp_path)
    write_cifar10(tmp_path, classes=9)
    assert "class 9 ('j') has no training image" in refused("cifar10", root=tmp_path)
    file.unlink()
    text = refused("cifar10", root=tmp_path, download=False)
    assert "HCDC_DATA" in text
    assert "'digits'" in text


@pytest.mark.parametrize(("name", "file"), [("cifar10", "data_batch_1.bin"), ("cifar100", "train.bin")])
def test_the_official_files_have_their_known_numbers_of_images(tmp_path, name, file):
    (write_cifar10 if name == "cifar10" else write_cifar100)(tmp_path)
    archive = _named_images.ARCHIVES[name]
    assert (len(archive.train) * archive.train_images, archive.test_images) == (50_000, 10_000)
    assert f"{archive.train_images:,}" in (text := refused(name, root=tmp_path))
    assert file in text


def archive_of(folder, monkeypatch, **changes):
    """A small archive in the form of CIFAR-10's, in the place of the official one."""
    write_cifar10(folder)
    path = folder / "small.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
    official = _named_images.ARCHIVES["cifar10"]
    content = {
        **official.__dict__,
        "url": path.as_uri(),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        **changes,
    }
    monkeypatch.setitem(_named_images.ARCHIVES, "cifar10", type(official)(**content))


@pytest.mark.usefixtures("small_cifar")
def test_a_download_is_checked_unpacked_and_kept(tmp_path, monkeypatch):
    archive_of(tmp_path / "server", monkeypatch)
    found = data("cifar10", root=tmp_path / "new")
    assert found.fingerprint() == data("cifar10", root=tmp_path / "server").fingerprint()
    left = {file.name for file in (tmp_path / "new" / "cifar-10-batches-bin").iterdir()}
    assert not any("download" in name or "tar" in name for name in left)
    (tmp_path / "server" / "small.tar.gz").unlink()
    assert data("cifar10", root=tmp_path / "new").fingerprint() == found.fingerprint()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0" * 64}, "the sha256 of file:"),
        ({"url": "file:///nowhere/at/all.tar.gz"}, "could not be downloaded (URLError"),
        ({"names": "absent.txt"}, "absent.txt"),
    ],
)
def test_a_failed_download_leaves_nothing(tmp_path, monkeypatch, changes, words):
    archive_of(tmp_path / "server", monkeypatch, **changes)
    text = refused("cifar10", root=tmp_path / "new")
    assert words in text
    assert "HCDC_DATA" in text
    assert "'digits'" in text
    assert not (tmp_path / "new").exists()


# --- digits ---------------------------------------------------------------------------------------------


def test_digits_come_with_scikit_learn():
    source = pytest.importorskip("sklearn.datasets").load_digits()
    found = data("digits")
    assert isinstance(found, ImageData)
    assert (found.shape, found.num_classes) == ((1, 8, 8), 10)
    assert len(found.train) + len(found.val) + len(found.test) == 1797
    assert repr(found) == "<images 'digits': 899 / 539 / 359 of 1 x 8 x 8 in 10 classes>"
    assert repr(found.val) == "<539 images of 1 x 8 x 8, uint8>"
    levels = sorted(set(np.round(np.arange(17) * 255 / 16).astype(int).tolist()))
    x = torch.cat([found.train.x, found.val.x, found.test.x])
    assert x.unique().tolist() == levels
    assert int((x == 255).sum()) == int((source.images == 16).sum())
    y = torch.cat([found.train.y, found.val.y, found.test.y])
    assert np.bincount(y).tolist() == np.bincount(source.target).tolist()
    assert reopen(found.describe()).fingerprint() == found.fingerprint()
    assert "did you mean 'digits'?" in refused("digit")
    assert "names a column" in refused("digits", target="y")


# --- files of arrays ------------------------------------------------------------------------------------


def arrays(*shape, train=30, test=12, **changes):
    content = {
        "x_train": pixels(train, *shape),
        "y_train": numbers(train),
        "x_test": pixels(test, *shape, seed=1),
        "y_test": numbers(test),
    } | changes
    return {key: value for key, value in content.items() if value is not None}


def test_npz_grey_colour_and_column_labels(tmp_path):
    np.savez(tmp_path / "grey.npz", **arrays(7, 5))
    grey = data(tmp_path / "grey.npz", seed=2)
    assert (grey.name, grey.shape) == ("grey", (1, 7, 5))
    assert torch.equal(grey.test.x[:, 0], torch.from_numpy(arrays(7, 5)["x_test"]))
    assert grey.origin == {"source": str(tmp_path / "grey.npz"), "seed": 2}
    assert reopen(grey.describe()).fingerprint() == grey.fingerprint()
    content = arrays(7, 5, 3, y_train=numbers(30)[:, None].astype(np.uint8))
    np.savez(tmp_path / "colour.npz", **content)
    colour = data(tmp_path / "colour.npz")
    assert torch.equal(colour.test.x, torch.from_numpy(content["x_test"].transpose(0, 3, 1, 2)))
    assert colour.test.x.is_contiguous()
    turned = content | {key: content[key].transpose(0, 3, 1, 2) for key in ("x_train", "x_test")}
    np.savez(tmp_path / "first.npz", **turned)
    assert data(tmp_path / "first.npz").fingerprint() == colour.fingerprint()
    val = {"x_val": pixels(9, 7, 5, 3), "y_val": numbers(9)}
    np.savez(tmp_path / "three.npz", **content, **val)
    assert data(tmp_path / "three.npz").split == "the split of the source: 30 / 9 / 12 images"


def test_a_file_with_the_name_of_a_set_stays_a_file(tmp_path):
    np.savez(tmp_path / "digits.npz", **arrays(4, 4))
    found = data(tmp_path / "digits.npz")
    assert found.origin["source"] == str(tmp_path / "digits.npz")
    assert reopen(found.describe()).fingerprint() == found.fingerprint()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_test": None, "y_train": None}, "lacks the arrays y_train, x_test;"),
        ({"x_val": pixels(3, 4, 4)}, "lacks the arrays y_val;"),
        ({"y_train": numbers(29)}, "there are 30 images and 29 labels"),
        ({"y_train": numbers(30).astype(float)}, "labels have type float64"),
        ({"y_train": np.array(["a", "b", "c"] * 10)}, "labels have type <U1"),
        ({"y_train": np.eye(3, dtype=int)[numbers(30)]}, "labels have shape (30, 3)"),
        ({"y_train": numbers(30) - 1}, "label -1 is out of range"),
        ({"y_train": numbers(30) + 1, "y_test": numbers(12) + 1}, "labels start at 1 (1 .. 3)"),
        ({"y_train": numbers(30, 2) * 2, "y_test": numbers(12, 2) * 2}, "class 1 is empty"),
        ({"y_train": numbers(30) * 10**9}, "class 3 is empty, but labels go up to 2000000000"),
        ({"y_test": numbers(12, 4)}, "class 3 has no training image (there are some in test);"),
        ({"y_test": numbers(12) + 5}, "bad, test: label 7 is out of range; 0 .. 2 is allowed"),
        ({"y_test": numbers(12) - 1}, "bad, test: label -1 is out of range"),
        ({"x_train": None}, "lacks the arrays x_train; images are"),
        ({"y_train": np.zeros(30, int), "y_test": np.zeros(12, int)}, "at least 2 classes"),
        ({"y_train": np.repeat([0, 1, 2], [19, 10, 1])}, "class 2 has 1 image"),
        ({"x_train": pixels(30, 4, 4).astype(np.int64)}, "images have type int64"),
        ({"x_train": pixels(30, 4, 4).astype(np.uint16)}, "images have type uint16"),
        ({"x_train": pixels(30, 4, 4) > 9}, "images have type bool"),
        ({"x_train": np.full((30, 4, 4), "a")}, "images have type <U1"),
        ({"x_train": np.array([{}] * 30)}, "plain arrays"),
        ({"x_train": pixels(30, 16)}, "images have shape (30, 16)"),
        ({"x_train": pixels(30, 4, 4, 4)}, "1 channel (grey) or 3 (colour)"),
        ({"x_train": pixels(0, 4, 4), "y_train": numbers(0)}, "there are no images"),
        ({"x_test": pixels(12, 4, 5)}, "train has 1 x 4 x 4 uint8, test has 1 x 4 x 5"),
        ({"x_test": pixels(12, 4, 4) / 255}, "test has 1 x 4 x 4 float32"),
    ],
)
def test_bad_arrays_are_refused(tmp_path, changes, words):
    np.savez(tmp_path / "bad.npz", **arrays(4, 4, **changes))
    assert words in refused(tmp_path / "bad.npz")


def test_infinite_pixels_are_refused():
    x = np.zeros((3000, 1, 2, 2), np.float32)
    x[2500, 0, 1, 1] = np.inf
    assert "image 2500 holds NaN or infinity" in refused((x, numbers(3000)))
    x = np.ones((30, 4, 4, 3))
    x[7] = 1e300
    assert "image 7 holds NaN or infinity (as float32)" in refused((x, numbers(30)))


def test_npy_files_stay_on_disk(tmp_path, monkeypatch):
    content = arrays(6, 6, 3) | {"x_val": pixels(9, 6, 6, 3), "y_val": numbers(9)}
    for key, array in content.items():
        np.save(tmp_path / f"{key}.npy", array)
    opened = []
    load = np.load

    def spy(path, **kwargs):
        opened.append(load(path, **kwargs))
        return opened[-1]

    monkeypatch.setattr(np, "load", spy)
    found = data(tmp_path)
    mapped = [array for array in opened if isinstance(array, np.memmap)]
    assert len(mapped) == 3
    assert found.train.x.data_ptr() in {array.ctypes.data for array in mapped}, "no copy was made"
    assert torch.equal(found.train.x, torch.from_numpy(content["x_train"].transpose(0, 3, 1, 2)))
    parts = {part: (content[f"x_{part}"], content[f"y_{part}"]) for part in ("train", "val", "test")}
    assert data(parts).fingerprint() == found.fingerprint()
    assert reopen(found.describe()).fingerprint() == found.fingerprint()
    monkeypatch.setattr(_image_files, "MOST_BYTES_IN_MEMORY", 1000)
    assert data(tmp_path).fingerprint() == found.fingerprint()
    assert "write x_val.npy and y_val.npy" in refused(tmp_path, split="seeded")
    for part in ("x_val", "y_val"):
        (tmp_path / f"{part}.npy").unlink()
    assert "write x_val.npy and y_val.npy" in refused(tmp_path)
    monkeypatch.undo()
    assert len(data(tmp_path).val) == 3
    (tmp_path / "x_test.npy").write_bytes(b"no array")
    text = refused(tmp_path)
    assert "cannot be read as a plain array" in text
    assert "pickle" not in text
    (tmp_path / "x_test.npy").unlink()
    assert "lacks the arrays x_test" in refused(tmp_path)


# --- folders --------------------------------------------------------------------------------------------


def write_folder(root, classes=("cat", "ant"), each=4, shape=(6, 5, 3), start=0):
    pillow = pytest.importorskip("PIL.Image")
    written = {}
    for c, called in enumerate(classes):
        (root / called).mkdir(parents=True)
        for k in range(each):
            x = pixels(1, *shape, seed=start + 100 * c + k)[0]
            pillow.fromarray(x).save(root / called / f"{k}.png")
            written.setdefault(called, []).append(x)
    return written


def test_a_folder_of_classes(tmp_path):
    written = write_folder(tmp_path / "pets", each=5)
    (tmp_path / "pets" / "cat" / ".hidden").write_text("ignored")
    (tmp_path / "pets" / "README.txt").write_text("ignored")
    found = data(tmp_path / "pets", seed=1)
    assert (found.name, found.class_names, found.shape) == ("pets", ("ant", "cat"), (3, 6, 5))
    expected = sorted(
        (np.ascontiguousarray(x.transpose(2, 0, 1)).tobytes(), c)
        for c, called in enumerate(["ant", "cat"])
        for x in written[called]
    )
    assert together(found, "train", "val", "test") == expected
    assert "seed 1: 6 / 2 / 2 images" in found.split
    assert reopen(found.describe()).fingerprint() == found.fingerprint()


def test_a_folder_of_parts_and_a_class_called_train(tmp_path):
    parts = {
        part: write_folder(tmp_path / "set" / part, each=m, start=k)
        for k, (part, m) in enumerate([("train", 4), ("val", 2), ("test", 3)])
    }
    found = data(tmp_path / "set")
    assert found.split == "the split of the source: 8 / 4 / 6 images"
    for part, written in parts.items():
        images = getattr(found, part)
        expected = np.stack([*written["ant"], *written["cat"]]).transpose(0, 3, 1, 2)
        assert np.array_equal(images.x.numpy(), expected)
        assert images.y.tolist() == sorted(images.y.tolist())
    write_folder(tmp_path / "set" / "test", classes=("dog",))
    assert "dog' is not a class of" in refused(tmp_path / "set")
    write_folder(tmp_path / "vehicles", classes=("car", "train"))
    assert data(tmp_path / "vehicles").class_names == ("car", "train")


@pytest.mark.parametrize("names", [("train", "validation", "test"), ("Train", "VALID", "Test")])
def test_other_names_of_part_folders(tmp_path, names):
    for k, (part, called) in enumerate(zip(("train", "val", "test"), names)):
        for root in (tmp_path / "a" / part, tmp_path / "b" / called):
            write_folder(root, start=k)
    found = data(tmp_path / "b")
    assert found.fingerprint() == data(tmp_path / "a").fingerprint()
    assert found.class_names == ("ant", "cat")
    write_folder(tmp_path / "b" / "val")
    assert f"has the val part more than once: {', '.join(sorted([names[1], 'val']))}; keep one" in refused(
        tmp_path / "b"
    )


@pytest.mark.parametrize("names", [("val", "test"), ("train", "holdout"), ("train", "test", "logs")])
def test_folders_of_unknown_parts_say_how_they_were_read(tmp_path, names):
    for called in names:
        write_folder(tmp_path / called)
    text = refused(tmp_path)
    first = min(names)
    assert f"{first}/ant' is a folder in '{tmp_path / first}', which was read as a class folder" in text
    assert "only train, val (or validation, valid) and test may stand above class folders" in text


def test_files_that_are_no_images_are_left_out(tmp_path, caplog):
    write_folder(tmp_path / "clean", each=5)
    write_folder(tmp_path / "pets", each=5)
    expected = data(tmp_path / "clean")
    (tmp_path / "pets" / "cat" / ".DS_Store").write_text("hidden")
    assert data(tmp_path / "pets").split == expected.split
    for file in ("cat/Thumbs.db", "cat/notes.txt", "ant/9.webp"):
        (tmp_path / "pets" / file).write_text("no image")
    with caplog.at_level(logging.INFO, "hcdc"):
        found = data(tmp_path / "pets")
    assert found.fingerprint() == expected.fingerprint()
    assert found.split == f"{expected.split}; files left out, not .png, .jpg, .jpeg: 3"
    assert found.split in caplog.text
    (tmp_path / "pets" / "cat" / "9.png").symlink_to(tmp_path / "nowhere.png")
    assert "9.png' cannot be read as an image" in refused(tmp_path / "pets")


@pytest.mark.filterwarnings("error")
def test_transparent_pixels_are_white():
    pillow = pytest.importorskip("PIL.Image")
    red = np.zeros((3, 4, 4), np.uint8)
    red[0], red[2] = 255, (255, 0, 51, 255)
    clear = pillow.fromarray(np.stack([red[0], red[1], red[1], red[2]], 2))
    expected = np.tile(
        np.array([[255, 255, 255, 255], [0, 255, 204, 0]], np.uint8)[[0, 1, 1]][:, None], (1, 4, 1)
    )
    found = data(Pairs(lambda k: (clear, k % 2)))
    assert torch.equal(found.train.x[0], torch.from_numpy(expected))
    palette = pillow.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 255, 255, 0, 0])
    palette.putpixel((1, 0), 0)
    for transparency in (1, bytes([255, 0])):
        palette.info["transparency"] = transparency
        found = data(Pairs(lambda k: (palette, k % 2)))
        assert found.train.x[0, :, 0, :2].T.tolist() == [[255, 255, 255], [0, 0, 255]]
    grey = pillow.fromarray(np.stack([np.full((4, 4), 9, np.uint8), red[2]], 2), "LA")
    found = data(Pairs(lambda k: (grey, k % 2)))
    assert found.shape == (1, 4, 4)
    assert found.train.x[0, 0, 0].tolist() == [9, 255, 206, 9]


def test_grey_and_coloured_files_are_not_mixed(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    write_folder(tmp_path / "grey", shape=(6, 5))
    assert data(tmp_path / "grey").shape == (1, 6, 5)
    write_folder(tmp_path / "both")
    assert data(tmp_path / "both").shape == (3, 6, 5)
    for folder, picture in (("grey", pixels(1, 6, 5, 3)[0]), ("both", pixels(1, 6, 5)[0])):
        odd = tmp_path / folder / "cat" / "1.png"
        pillow.fromarray(picture).save(odd)
        first = tmp_path / folder / "ant" / "0.png"
        grey, colour = (first, odd) if folder == "grey" else (odd, first)
        assert refused(tmp_path / folder) == (
            f"'{grey}' is grey and '{colour}' is in colour; convert all to one of the two with Pillow: "
            "image.convert('L') for grey, image.convert('RGB') for colour"
        )


def test_transparency_and_depth_of_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    write_folder(tmp_path / "both")
    opaque = np.concatenate([pixels(1, 6, 5, 3)[0], np.full((6, 5, 1), 255, np.uint8)], 2)
    pillow.fromarray(opaque).save(tmp_path / "both" / "cat" / "1.png")
    found = data(tmp_path / "both")
    expected = np.ascontiguousarray(opaque[..., :3].transpose(2, 0, 1)).tobytes()
    assert expected in {row for row, _ in together(found, "train", "val", "test")}
    pillow.fromarray(np.full((6, 5), 3000, np.uint16)).save(tmp_path / "both" / "cat" / "2.png")
    assert "8 bits per channel are needed" in refused(tmp_path / "both")


def test_jpeg_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for called, level in (("dark", 10), ("light", 240)):
        (tmp_path / called).mkdir()
        for k, suffix in enumerate(("jpg", "jpeg", "JPG")):
            pillow.fromarray(np.full((8, 8, 3), level, np.uint8)).save(tmp_path / called / f"{k}.{suffix}")
    found = data(tmp_path)
    assert [len(found.train), len(found.val), len(found.test)] == [2, 2, 2]
    assert found.train.x.float().mean((1, 2, 3)).tolist() == [10, 240]


def test_bad_folders_are_refused(tmp_path):
    assert "is a folder without class folders" in refused(tmp_path)
    write_folder(tmp_path / "a", classes=("cat",))
    assert "at least 2 classes" in refused(tmp_path / "a")
    (tmp_path / "a" / "dog").mkdir()
    assert "dog' is empty" in refused(tmp_path / "a")
    (tmp_path / "a" / "dog" / "notes.txt").write_text("hello")
    assert "dog' holds no image .png, .jpg, .jpeg (but 'notes.txt')" in refused(tmp_path / "a")
    (tmp_path / "a" / "dog" / "notes.txt").rename(tmp_path / "a" / "dog" / "notes.png")
    assert "notes.png' cannot be read as an image" in refused(tmp_path / "a")
    whole = (tmp_path / "a" / "cat" / "0.png").read_bytes()
    (tmp_path / "a" / "dog" / "notes.png").write_bytes(whole[:-40])
    assert "notes.png' cannot be read as an image" in refused(tmp_path / "a")
    (tmp_path / "a" / "dog" / "notes.png").unlink()
    (tmp_path / "a" / "dog" / "puppies.png").mkdir()
    text = refused(tmp_path / "a")
    assert "puppies.png' is a folder in" in text
    assert "read as a class folder" in text
    write_folder(tmp_path / "b", classes=("ant",))
    write_folder(tmp_path / "b", classes=("bee",), shape=(6, 7, 3))
    text = refused(tmp_path / "b")
    assert "ant/0.png' is 6 x 5 uint8" in text
    assert "bee/0.png' is 6 x 7 uint8" in text
    assert "names a column" in refused(tmp_path / "b", target="y")


# --- size -----------------------------------------------------------------------------------------------


def test_large_images_are_averaged_down():
    x = torch.from_numpy(pixels(3, 1, 128, 64))
    found = smaller(x)
    expected = x.double().view(3, 1, 64, 2, 32, 2).mean((3, 5)).round()
    assert found.dtype == torch.uint8
    assert torch.equal(found.double(), expected)
    same = x[:, :, :64]
    assert smaller(same) is same
    assert smaller(torch.rand(70, 3, 50, 200)).shape == (70, 3, 16, 64)
    assert smaller(torch.rand(1, 3, 1, 1000)).shape == (1, 3, 1, 64)


def test_resizing_is_said_and_the_same_on_every_road(tmp_path, caplog):
    written = write_folder(tmp_path / "large", shape=(80, 160, 3), each=6)
    with caplog.at_level(logging.INFO, "hcdc"):
        found = data(tmp_path / "large")
    assert found.shape == (3, 32, 64)
    assert "images resized from 80 x 160 to 32 x 64 pixels" in found.split
    assert found.split in caplog.text
    x = np.stack([*written["ant"], *written["cat"]])
    y = np.repeat([0, 1], 6)
    tensors = data((torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y)))
    assert tensors.fingerprint() == found.fingerprint()
    assert "images resized from 80 x 160 to 32 x 64 pixels" in tensors.split


# --- objects --------------------------------------------------------------------------------------------


class Pairs(Dataset):
    """A data set of the user's: pairs made by a function of the number."""

    def __init__(self, make, count=30):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        return self.make(k)


class Columns:
    """What is used of a Hugging Face ``Dataset``."""

    class Feature:
        names = ("x", "y", "z")

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)
        self.features = {key: self.Feature() if key == "label" else None for key in columns}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, k):
        return {key: values[k] for key, values in self.columns.items()}


def test_every_kind_of_object_is_the_same_data():
    pillow = pytest.importorskip("PIL.Image")
    x, y = pixels(30, 6, 5, 3), numbers(30)
    tensor = torch.from_numpy(x).permute(0, 3, 1, 2)
    expected = data((tensor, torch.from_numpy(y)))
    assert isinstance(expected, ImageData)
    assert (expected.name, expected.source, expected.origin) == ("images", "memory", {})
    pictures = [pillow.fromarray(image) for image in x]
    turned = x[..., ::-1].copy()[..., ::-1]
    for source in (
        (x, y),
        (turned, y),
        (x, y.tolist()),
        TensorDataset(tensor, torch.from_numpy(y)),
        Pairs(lambda k: (pictures[k], int(y[k]))),
        Pairs(lambda k: (x[k], y[k])),
        Pairs(lambda k: [tensor[k], torch.tensor([y[k]])]),
        Columns(img=pictures, label=y.tolist()),
        {"train": Columns(image=pictures, labels=y.tolist(), other=y)},
    ):
        assert data(source).fingerprint() == expected.fingerprint()
    other = Columns(label=numbers(30, 2).tolist(), picture=pictures, kind=y.tolist())
    assert data(other, image="picture", label="kind").fingerprint() == expected.fingerprint()
    named = data(Columns(image=pictures, label=y.tolist()))
    assert named.class_names == ("x", "y", "z")
    assert expected.class_names == ("0", "1", "2")
    assert data(expected) is expected


def test_class_names_of_a_torchvision_like_set():
    source = Pairs(lambda k: (torch.rand(3, 4, 4), k % 2))
    source.classes = ["cat", "dog"]
    found = data({"train": source, "test": Pairs(source.make, 10)})
    assert found.class_names == ("cat", "dog")
    assert found.train.x.dtype == torch.float32
    assert [len(found.train), len(found.val), len(found.test)] == [26, 4, 10]
    source.classes = ["cat"]
    assert "images, train: label 1 is out of range; 0 .. 0 is allowed" in refused(source)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((0, 1), "images: class 2 ('z') has no training image; every class needs at least one"),
        ((1, 2), "images: class 0 ('x') has no training image; every class needs at least one"),
        ((1, 2, 3), "images, train: label 3 is out of range; 0 .. 2 is allowed"),
        ((0, 1, 2, -1), "images, train: label -1 is out of range; 0 .. 2 is allowed"),
    ],
)
def test_labels_are_checked_by_class_names(labels, words):
    x, y = pixels(30, 4, 4, 3), [labels[k % len(labels)] for k in range(30)]
    named = Pairs(lambda k: (x[k], y[k]))
    named.classes = ["x", "y", "z"]
    for source in (Columns(image=list(x), label=y), named):
        text = refused(source)
        assert text == words
        assert "subtract" not in text


def test_dicts_with_an_image_and_a_label():
    x, y = pixels(30, 6, 5, 3), numbers(30)
    expected = data((x, y)).fingerprint()
    usual = Pairs(lambda k: {"label": int(y[k]), "image": x[k]})
    assert data(usual).fingerprint() == expected
    assert data(usual, image="image", label="label").fingerprint() == expected
    other = Pairs(lambda k: {"picture": x[k], "label": 0, "kind": int(y[k])})
    assert data({"train": other}, image="picture", label="kind").fingerprint() == expected
    assert "image= names no column; choose one of: picture, label, kind" in refused(other)
    assert "did you mean 'picture'?" in refused(other, image="pictur")
    pairs = Pairs(lambda k: (x[k], int(y[k])))
    assert "keys of a Dataset of dicts, but a Pairs has none" in refused(pairs, image="image")


def test_grey_arrays_and_lists_of_images():
    x, y = pixels(30, 6, 5), numbers(30)
    expected = data({"train": (x, y)})
    assert expected.shape == (1, 6, 5)
    sources = (x, torch.from_numpy(x), list(x), [torch.from_numpy(image) for image in x], list(x[..., None]))
    for images in sources:
        assert data((images, y)).fingerprint() == expected.fingerprint()
    assert data({"train": (list(x), y)}).fingerprint() == expected.fingerprint()
    floats = data((x / 255, y))
    assert (floats.kind, floats.shape, floats.train.x.dtype) == ("image", (1, 6, 5), torch.float32)
    colour = pixels(30, 80, 90, 3)
    assert data((list(colour), y)).fingerprint() == data((colour, y)).fingerprint(), "made smaller alike"
    mixed = [image[: 5 + k % 2] for k, image in enumerate(x)]
    ragged = np.empty(30, object)
    ragged[:] = mixed
    for images in (mixed, ragged):
        text = refused((images, y))
        assert "images of mixed shapes: image 0 of train is 5 x 5 uint8, image 1 of train is 6 x 5" in text


def test_parts_are_compared_as_they_came():
    """A part that was made smaller while it was read fits one that was not; grey does not fit colour."""
    x, y = pixels(30, 100, 80, 3), numbers(30)
    pairs = Pairs(lambda k: (x[k], int(y[k])))
    expected = data({"train": (x, y), "test": (x, y)})
    assert expected.shape == (3, 64, 51)
    for parts in ({"train": pairs, "test": (x, y)}, {"train": (x, y), "test": pairs}):
        found = data(parts)
        assert found.fingerprint() == expected.fingerprint()
        assert found.split == expected.split
        assert "resized from 100 x 80 to 64 x 51" in found.split
    other = {"train": pairs, "test": (x.repeat(2, 1).repeat(2, 2), y)}
    assert "train has 3 x 100 x 80 uint8, test has 3 x 200 x 160 uint8" in refused(other)
    grey = Pairs(lambda k: (x[k, :9, :9, 0], int(y[k])))
    colour = Pairs(lambda k: (x[k, :9, :9], int(y[k])))
    text = refused({"train": grey, "val": grey, "test": colour})
    assert "train has 1 x 9 x 9 uint8, test has 3 x 9 x 9 uint8" in text
    assert data({"train": grey, "test": grey}).shape == (1, 9, 9)


def test_names_of_parts_in_a_mapping():
    parts = {"train": (pixels(30, 4, 4), numbers(30)), "test": (pixels(9, 4, 4), numbers(9))}
    extra = (pixels(6, 4, 4), numbers(6))
    expected = data({**parts, "val": extra}).fingerprint()
    for called in ("valid", "Validation"):
        assert data({**parts, called: extra}).fingerprint() == expected
    text = refused({**parts, "val": extra, "validation": extra})
    assert "the val part is given more than once, among train, test, val, validation; keep one" in text
    assert "there is no train part besides test; parts are train, val" in refused({"test": parts["test"]})


def test_classes_that_a_part_lacks_are_named(tmp_path, caplog):
    for part in ("train", "val", "test"):
        write_folder(tmp_path / part, classes=("ant",) if part == "val" else ("ant", "cat"))
    with caplog.at_level(logging.INFO, "hcdc"):
        found = data(tmp_path)
    assert found.split == "the split of the source: 8 / 4 / 8 images; no image in val of class 'cat'"
    assert found.split in caplog.text
    x, y = pixels(30, 4, 4), numbers(30, 5)
    found = data({"train": (x, y), "val": (x, y), "test": (x[:1], y[:1])})
    assert found.split.endswith("; no image in test of 4 classes ('1', '2', '3', ...)")


def test_arrays_of_both_orders():
    """Where both ends could be channels, tensors have them first and arrays last."""
    x = pixels(30, 3, 5, 3)
    assert data((torch.from_numpy(x), numbers(30))).shape == (3, 5, 3)
    assert data((x, numbers(30))).shape == (3, 3, 5)
    assert isinstance(data((x.reshape(30, -1), numbers(30))), TableData), "two dimensions are a table"


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3, 4, 4), 0)])


def test_bad_objects_are_refused():
    zeros = torch.zeros(3, 4, 4)
    assert "has no length" in refused(Stream())
    assert "is empty" in refused(Pairs(lambda k: (zeros, k), 0))
    assert "example 0 has the label tensor([[0., 0., 0., 0.]" in refused(Pairs(lambda k: zeros))
    assert "has the label 'cat'" in refused(Pairs(lambda k: (zeros, "cat")))
    assert "has the label 0.5" in refused(Pairs(lambda k: (zeros, 0.5)))
    assert "example 0 is a int, not a pair" in refused(Pairs(lambda k: k))
    assert "is a str, not an image" in refused(Pairs(lambda k: ("a.png", 0)))
    assert "has shape (2, 4, 4)" in refused(Pairs(lambda k: (zeros[:2], 0)))
    text = refused(Pairs(lambda k: (torch.zeros(3, 4, 4 + (k > 6)), k % 2)))
    assert "example 0 of train is 4 x 4 float32, example 7 of train is 4 x 5 float32" in text
    assert "mixed shapes" in refused(Pairs(lambda k: (zeros.double() if k else zeros, k % 2)))
    assert "labels start at 1" in refused(Pairs(lambda k: (zeros, k % 2 + 1)))
    parts = {
        part: Pairs(lambda k, n=n: (torch.zeros(3, n, n), k % 2)) for part, n in (("train", 4), ("test", 5))
    }
    assert "train has 3 x 4 x 4 float32, test has 3 x 5 x 5 float32" in refused(parts)
    assert "part 'tset' is not known; did you mean 'test'?" in refused({"train": (zeros, 0), "tset": 1})
    assert "not the pair (x, y)" in refused({"train": (zeros, zeros, zeros)})
    columns = Columns(photo=[zeros], label=[0])
    assert "image= names no column; choose one of: photo, label" in refused(columns)
    assert "did you mean 'photo'?" in refused(columns, image="foto")
    assert "name columns of a Hugging Face Dataset" in refused("digits", image="image")
    assert "names a column" in refused(columns, target="label")


# --- real data ------------------------------------------------------------------------------------------

real = pytest.mark.skipif("HCDC_DATA" not in os.environ, reason="HCDC_DATA is not set")


@pytest.mark.data
@real
def test_real_cifar10():
    found = data("cifar10", download=False)
    assert [len(found.train), len(found.val), len(found.test)] == [40000, 10000, 10000]
    both = torch.cat([found.train.y, found.val.y])
    assert np.bincount(both).tolist() == [5000] * 10
    assert np.bincount(found.test.y).tolist() == [1000] * 10
    assert found.test.y[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert found.class_names[0] == "airplane"
    order = data("cifar10", download=False, split=(range(50000), range(50000, 50001), range(50001, 60000)))
    assert order.train.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    known = torch.tensor([[0.49139968, 0.48215841, 0.44653091], [0.24703224, 0.24348513, 0.26158784]])
    assert torch.allclose(torch.stack([order.mean, order.std]), known, atol=1e-6)


@pytest.mark.data
@real
def test_real_mnist():
    path = os.path.join(os.environ["HCDC_DATA"], "mnist.npz")
    if not os.path.exists(path):
        pytest.skip("HCDC_DATA has no mnist.npz")
    found = data(path)
    assert found.shape == (1, 28, 28)
    both = torch.cat([found.train.y, found.val.y])
    assert np.bincount(both).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert abs(float(found.mean) - 0.1307) < 1e-3
    assert abs(float(found.std) - 0.3081) < 1e-3


def test_pictures_stand_as_they_were_taken(tmp_path):
    """A camera that was held upright says so beside the pixels."""
    pillow = pytest.importorskip("PIL.Image")
    for called in ("cat", "ant"):
        (tmp_path / "pets" / called).mkdir(parents=True)
        for k in range(5):
            picture = pillow.fromarray(pixels(1, 6, 4, 3, seed=k)[0])
            turned = picture.getexif()
            turned[0x0112] = 6
            picture.save(tmp_path / "pets" / called / f"{k}.png", exif=turned)
    found = data(tmp_path / "pets")
    assert found.shape == (3, 4, 6)
    wanted = torch.from_numpy(np.rot90(pixels(1, 6, 4, 3, seed=0)[0], -1).copy()).permute(2, 0, 1)
    assert any(torch.equal(x, wanted) for part in (found.train, found.val, found.test) for x in part.x)


def test_few_drawn_validation_images_are_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "hcdc"):
        data((pixels(900, 4, 4), numbers(900)))
        assert not caplog.text
        data((pixels(120, 4, 4), numbers(120)))
    assert re.search(r"only \d+ validation images were set apart.*folder val/ beside train/", caplog.text)
