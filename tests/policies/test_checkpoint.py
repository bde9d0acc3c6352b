import json
import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from robogen.errors import PolicyError
from robogen.policies.bc import BCPolicy
from robogen.policies.checkpoint import load_checkpoint, save_checkpoint
from robogen.policies.network import count


def test_weights_survive_as_they_are_stored(tmp_path, make_checkpoint):
    path = make_checkpoint()
    first = load_checkpoint(path)
    again = tmp_path / "again.safetensors"
    save_checkpoint(again, first.network, first.config)
    assert again.read_bytes() == path.read_bytes(), "half precision is lossless the second time"
    assert load_checkpoint(again).hash == first.hash
    assert first.config.statistics.points_std[0, 0] == np.float32(0.1)


def test_the_default_network_is_small(make_checkpoint):
    path = make_checkpoint()
    assert path.stat().st_size < 4_000_000
    assert count(load_checkpoint(path).network) < 1_000_000


def test_loading_leaves_random_state_alone(make_checkpoint):
    path = make_checkpoint()
    before = torch.random.get_rng_state()
    load_checkpoint(path)
    assert torch.equal(before, torch.random.get_rng_state())


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_are_refused_unread(tmp_path, protocol):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Bomb(), protocol=protocol))
    with pytest.raises(PolicyError, match=r"is a Python pickle; .*robogen never does"):
        BCPolicy(checkpoint=path)


@pytest.mark.parametrize("modern", [True, False])
def test_torch_saves_are_refused_unread(tmp_path, modern):
    path = tmp_path / "model.safetensors"
    torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=modern)
    with pytest.raises(PolicyError, match="robogen never does"):
        BCPolicy(checkpoint=path)


def test_a_missing_file(tmp_path):
    with pytest.raises(PolicyError, match=r"no checkpoint at .*Train one"):
        BCPolicy(checkpoint=tmp_path / "none.safetensors")


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(PolicyError, match="Cannot read"):
        BCPolicy(checkpoint=tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 200, 100_000])
def test_a_truncated_file(tmp_path, make_checkpoint, keep):
    path = make_checkpoint()
    path.write_bytes(path.read_bytes()[:keep])
    wanted = "truncated or damaged" if keep > 8 else "not a safetensors file"
    with pytest.raises(PolicyError, match=wanted):
        BCPolicy(checkpoint=path)


def test_somebody_elses_safetensors(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"w": torch.zeros(2)}, path, metadata={"format": "pt"})
    with pytest.raises(PolicyError, match=r"without robogen's metadata \(it has format\)"):
        BCPolicy(checkpoint=path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(format=99), "format 99"),
        (lambda d: d.pop("state"), "state"),
        (lambda d: d["network"].update(hidden=8), "size mismatch|Error"),
        (lambda d: d["action"].update(speed=3), "speed"),
        (lambda d: d["statistics"].update(state_mean=[0.0]), "shape"),
    ],
)
def test_metadata_that_does_not_fit(make_checkpoint, edit, message):
    path = make_checkpoint()
    rewrite_metadata(path, edit)
    with pytest.raises(PolicyError, match=message):
        BCPolicy(checkpoint=path)


def test_weights_that_are_not_numbers(tmp_path, make_checkpoint):
    loaded = load_checkpoint(make_checkpoint())
    weights = loaded.network.state_dict()
    next(iter(weights.values())).fill_(float("nan"))
    path = tmp_path / "nan.safetensors"
    save_checkpoint(path, weights, loaded.config)
    with pytest.raises(PolicyError, match="NaN"):
        BCPolicy(checkpoint=path)


def rewrite_metadata(path, edit):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    document = json.loads(header["__metadata__"]["robogen"])
    edit(document)
    header["__metadata__"]["robogen"] = json.dumps(document)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
