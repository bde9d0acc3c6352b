"""A pretrained policy inside LeRobot: load it, and ask it for chunks without its own queues."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robogen.errors import PolicyError
from robogen.policies.lerobot_folder import Folder
from robogen.policies.lerobot_processors import PREPROCESSOR, STATE

_IMAGES = "observation.images"
_INSTALL = (
    "Install robogen and LeRobot into one Python environment of their own: lerobot 0.4.4 on Python "
    "3.11, the newest on Python 3.12 or later; docs/lerobot.md has the commands. A policy that "
    "must stay in another environment is served to robogen with the openpi protocol."
)
Sampling = Literal["none", "rows", "alone"]
"""Where a policy's randomness comes from: it has none; a generator per row in one batch; the global
generator, so that rows are answered one at a time."""
SAMPLING: Mapping[str, Sampling] = {"act": "none", "diffusion": "rows"}
"""By policy type; others sample ``alone``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A loaded policy with its processors.

    Attributes:
        policy: LeRobot's policy, in evaluation mode.
        before: Preprocessor: batch of named tensors to batch on the device, normalised.
        after: Postprocessor: normalised actions to actions.
        kind: LeRobot's name of the policy type.
        device: Where the policy computes.
        versions: LeRobot's version, and what of torchvision is not there.
    """

    policy: Any
    before: Any
    after: Any
    kind: str
    device: str
    versions: Mapping[str, str]

    @property
    def sampling(self) -> Sampling:
        """Where the policy's randomness comes from."""
        return SAMPLING.get(self.kind, "alone")

    def chunks(
        self,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[np.float32] | None,
        instructions: Sequence[str],
        seeds: Sequence[int],
    ) -> NDArray[np.float64]:
        """Chunks of actions from the current step on.

        Args:
            images: By feature, (B, H, W, 3), or (B, T, H, W, 3) for policies with a history.
            state: (B, D) or (B, T, D).
            instructions: One per row.
            seeds: One per row; a row's noise is a function of its own.

        Returns:
            (B, chunk, A), un-normalised.
        """
        batch: dict[str, Any] = {"task": list(instructions)}
        if state is not None:
            batch[STATE] = torch.from_numpy(np.ascontiguousarray(state, np.float32))
        for key, frames in images.items():
            # As LeRobot's environments hand frames out, in memory too: another layout of the same
            # numbers has other last bits behind a convolution.
            batch[key] = torch.from_numpy(frames).movedim(-1, -3).contiguous().float() / 255
        config = self.policy.config
        amp = torch.autocast(self.device.split(":")[0], enabled=bool(config.use_amp))
        with torch.no_grad(), amp:
            ready = self.before(batch)
            actions: Tensor = self.after(self._predict(ready, seeds))
        return actions.float().cpu().numpy().astype(np.float64)

    def round_trip(self, actions: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Actions (n, A) normalised as for training, and back; None when there is no such step."""
        steps = [s for s in self.before.steps if type(s).__name__ == "NormalizerProcessorStep"]
        if len(steps) != 1:
            return None
        values = torch.from_numpy(np.asarray(actions, np.float32)).to(self.device)
        normalised = steps[0]({"action": values, "observation": None})["action"]
        back: Tensor = self.after(normalised)
        return back.float().cpu().numpy().astype(np.float64)

    # -- one query ---------------------------------------------------------------------------------

    def _predict(self, batch: dict[str, Any], seeds: Sequence[int]) -> Tensor:
        if self.sampling == "none":
            return self._batch_chunk(batch)
        if self.sampling == "rows":
            return self._diffusion(batch, seeds)
        answers = []
        devices = [torch.device(self.device)] if self.device.startswith("cuda") else []
        for row, seed in enumerate(seeds):
            with torch.random.fork_rng(devices):
                torch.manual_seed(seed)
                answers.append(self._batch_chunk(_row(batch, row, len(seeds))))
        return torch.cat(answers)

    def _batch_chunk(self, batch: dict[str, Any]) -> Tensor:
        """One call of the policy's chunk prediction, on queues that hold nothing of another."""
        self.policy.reset()
        if self.kind == "vqbet":
            # Its predict_action_chunk reads frames from queues that select_action fills.
            config = self.policy.config
            inputs = {
                STATE: batch[STATE],
                _IMAGES: torch.stack([batch[key] for key in config.image_features], dim=-4),
            }
            actions: Tensor = self.policy.vqbet(inputs, rollout=True)
            return actions[:, : config.action_chunk_size]
        chunk: Tensor = self.policy.predict_action_chunk(batch)
        return chunk

    def _diffusion(self, batch: dict[str, Any], seeds: Sequence[int]) -> Tensor:
        """The whole horizon from the current step on, each row with noise of its own.

        ``predict_action_chunk`` reads its queues, cuts the horizon to ``n_action_steps`` and draws
        the scheduler's noise for the whole batch at once, so its two halves are called instead.
        """
        config, model = self.policy.config, self.policy.diffusion
        inputs = {STATE: batch[STATE]}
        if config.image_features:
            inputs[_IMAGES] = torch.stack([batch[key] for key in config.image_features], dim=-4)
        condition = model._prepare_global_conditioning(inputs)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        shape = (1, config.horizon, config.action_feature.shape[0])
        noise = torch.cat([torch.randn(shape, generator=each) for each in generators])
        actions: Tensor = model.conditional_sample(
            len(seeds),
            global_cond=condition,
            generator=generators,
            noise=noise.to(condition),
        )
        return actions[:, config.n_obs_steps - 1 :]


def _row(batch: Mapping[str, Any], row: int, count: int) -> dict[str, Any]:
    """One row of a preprocessed batch, still with a batch axis."""

    def of(value: Any) -> Any:
        if isinstance(value, Tensor) and len(value) == count:
            return value[row : row + 1].clone()  # matrix products differ with memory's alignment
        if isinstance(value, list) and len(value) == count:
            return value[row : row + 1]
        return value

    return {key: of(value) for key, value in batch.items()}


# -- loading ---------------------------------------------------------------------------------------


def load_model(folder: Folder, *, device: str | None, offline: bool) -> Model:
    """Load a checked folder through LeRobot's own factory.

    Args:
        folder: What to load.
        device: A torch device; None: ``cuda`` where there is one, else ``cpu``.
        offline: Whether LeRobot may not reach the hub, for tokenizers and backbones that lie there.

    Raises:
        PolicyError: LeRobot is not installed, too old, or refuses the folder.
    """
    lerobot = import_lerobot(offline=offline)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise PolicyError(
            f"device={chosen} cannot be used here ({error}). Choose cpu, or cuda on a machine with "
            "a GPU and a PyTorch built for it."
        ) from error
    versions = {"lerobot_version": metadata.version("lerobot"), **lerobot.notes}
    with _explained(folder, versions["lerobot_version"]), contextlib.redirect_stdout(io.StringIO()):
        config = lerobot.configs.PreTrainedConfig.from_pretrained(
            folder.path, local_files_only=True, cli_overrides=[f"--device={chosen}"]
        )
        if getattr(config, "pretrained_backbone_weights", None) is not None:
            config.pretrained_backbone_weights = None  # the folder's weights replace them
        policy = _policy(lerobot, folder, config)
        before, after = _processors(lerobot, folder, config, chosen)
    return Model(
        policy=policy,
        before=before,
        after=after,
        kind=folder.kind,
        device=chosen,
        versions=versions,
    )


def _policy(lerobot: _LeRobot, folder: Folder, config: Any) -> Any:
    kind = lerobot.factory.get_policy_class(folder.kind)
    # LeRobot's own loader leaves weights that the file lacks at random; types with a loader of
    # their own rename keys on the way.
    own = kind.from_pretrained.__func__ is lerobot.base.PreTrainedPolicy.from_pretrained.__func__
    strict = {"strict": True} if own else {}
    policy = kind.from_pretrained(folder.path, config=config, **strict)
    policy.eval()
    return policy


def _processors(
    lerobot: _LeRobot, folder: Folder, config: Any, device: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    make = lerobot.factory.make_pre_post_processors
    if not folder.pipelines:
        pair = make(policy_cfg=config)
    else:
        # Frames come under the policy's own names, so names of its dataset are not to be changed.
        wanted = {
            "device_processor": {"device": device},
            "rename_observations_processor": {"rename_map": {}},
        }
        names = [step.name for step in folder.pipelines[PREPROCESSOR]]
        pair = make(
            policy_cfg=config,
            pretrained_path=str(folder.path),
            preprocessor_overrides={name: wanted[name] for name in names if name in wanted},
        )
    return pair[0], pair[1]


@contextlib.contextmanager
def _explained(folder: Folder, version: str) -> Any:
    """What LeRobot raises while loading, as one paragraph."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:
        # Version skew, plug-ins and optional packages raise anything; the cause stays attached.
        text = " ".join(str(error).split())[:400]
        raise PolicyError(
            f"LeRobot {version} cannot load {folder.path} of type '{folder.kind}' "
            f"({type(error).__name__}: {text}). Use the LeRobot that saved it, or one of the same "
            "release line; a missing package is an extra of LeRobot (pip install "
            f"'lerobot[{folder.kind}]'); tokenizers and backbones on the hub are downloaded "
            "before, or with policy.lerobot.download=true."
        ) from error


@dataclass(frozen=True, kw_only=True)
class _LeRobot:
    configs: ModuleType
    base: ModuleType
    factory: ModuleType
    notes: Mapping[str, str]


def import_lerobot(*, offline: bool) -> _LeRobot:
    """LeRobot's modules that are called here.

    Raises:
        PolicyError: LeRobot is missing, too old, or broken.
    """
    if importlib.util.find_spec("lerobot") is None:
        raise PolicyError(
            f"Policy type 'lerobot' needs LeRobot, which is not installed here. {_INSTALL}"
        )
    if offline:  # read when huggingface_hub is imported
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    notes = _torchvision()
    try:
        found = _LeRobot(
            configs=importlib.import_module("lerobot.configs.policies"),
            base=importlib.import_module("lerobot.policies.pretrained"),
            factory=importlib.import_module("lerobot.policies.factory"),
            notes=notes,
        )
    except (ImportError, RuntimeError) as error:
        raise PolicyError(f"LeRobot cannot be imported ({error}). {_INSTALL}") from error
    if not hasattr(found.factory, "make_pre_post_processors"):
        raise PolicyError(
            f"LeRobot {metadata.version('lerobot')} has no processors; robogen needs 0.4 or later. "
            f"{_INSTALL}"
        )
    return found


def _torchvision() -> dict[str, str]:
    """Import torchvision, without its compiled operators where they do not fit this PyTorch.

    Policies use its models and transforms, which are plain Python. An operator that is missing
    (``nms``) raises where it is called.
    """
    registrations = "torchvision._meta_registrations"
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return {}
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        sys.modules[registrations] = ModuleType(registrations)
        importlib.import_module("torchvision")
    # The module in its place has no file. It stays for later calls, which must say the same.
    found = sys.modules.get(registrations)
    if found is None or getattr(found, "__file__", None) is not None:
        return {}
    return {"torchvision": f"{metadata.version('torchvision')} without compiled operators"}


def from_hub(name: str, revision: str | None) -> Path:
    """Fetch a policy from the Hugging Face hub, or find it in the cache.

    Raises:
        PolicyError: It is not there, or cannot be reached.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise PolicyError(f"download=true needs huggingface_hub, which LeRobot brings. {_INSTALL}")
    hub = importlib.import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, revision=revision))
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise PolicyError(
            f"Cannot download '{name}' from the Hugging Face hub ({type(error).__name__}: {text}). "
            "Check the name and the connection, log in with `hf auth login` if it is private, or "
            "copy the folder here and give its path."
        ) from error
