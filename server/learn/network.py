"""The network: a shared trunk, values for the discrete controls, a tanh for each continuous one.

``HybridNetwork`` is the torch module that trains. ``Weights`` is a whole copy of its parameters at
one moment. Three readers of Weights play: for a plain MLP on the CPU ``NativeInference``, or where
there is no C compiler ``NumpyInference``; ``TorchInference`` for everything else.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn

from server import native
from server.learn.mlp import Mlp
from server.spaces import Observation, Spaces

Floats = npt.NDArray[np.float32]

UINT8_SCALE = 1.0 / 255.0
_ZERO = np.zeros((), np.float32)  # made once: a plain 0 is converted in every call
_NOTHING = np.zeros(0, np.float32)
_ROWS_AT_ONCE = 4  # of a batch, in a matrix product
_MIN_IMAGE = 36  # pixels: what the convolutions need on each side


@dataclass(frozen=True, slots=True)
class Shape:
    """What a network is built of: weights of another shape do not fit."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    layer_norm: bool = False
    noisy: bool = False
    dueling: bool = False
    distribution: str = "none"  # of a choice's worth: "none", "quantile" or "categorical"
    atoms: int = 32  # of that distribution
    value_low: float = -10.0  # worth of a categorical distribution's first atom
    value_high: float = 10.0  # and of its last
    bins: int = 0  # choices of a continuous control; 0: it is a number of its own
    frame_stack: int = 1  # frames that are seen at once
    trunk: str = "small"  # convolutions before the hidden layers, for images: a key of TRUNKS

    def to_plain(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {**dataclasses.asdict(self), "hidden_sizes": list(self.hidden_sizes)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Shape:
        """Read what ``to_plain`` gave; what an old one does not tell is as by default."""
        return cls(**{**plain, "hidden_sizes": tuple(plain["hidden_sizes"])})

    @property
    def width(self) -> int:
        """Numbers that describe one choice's worth."""
        return 1 if self.distribution == "none" else self.atoms

    def branches(self, spaces: Spaces) -> tuple[int, ...]:
        """Give the number of choices of each head, binned continuous controls included."""
        controls = len(spaces.actions.continuous)
        if not self.bins or not controls:
            return spaces.actions.heads
        discrete = spaces.actions.heads if spaces.actions.discrete else ()
        return (*discrete, *(self.bins,) * controls)


class Outputs(NamedTuple):
    """What the network says about a batch of observations."""

    values: Any  # (batch, choices) expected worth of each choice, head after head
    continuous: Any  # (batch, controls) in -1..1
    atoms: Any = None  # (batch, choices, width) what the worth was made of: for training only


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole copy of the network's parameters; newest wins."""

    version: int
    step: int
    time_s: float  # monotonic clock, when the copy was made
    flat: Floats  # every parameter, in the order of ``HybridNetwork.parameters()``


class HybridNetwork(nn.Module):
    """Trunk and heads for a game's spaces."""

    support: Tensor  # (width,) worth of a categorical distribution's atoms
    mix: Tensor  # (choices, raw) how raw outputs make the atoms: the dueling streams

    def __init__(self, spaces: Spaces, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.branches = shape.branches(spaces)
        self.scale = UINT8_SCALE if spaces.observation.dtype == "uint8" else 1.0
        self.image = image_shape(spaces.observation)
        self.convolutions: nn.Sequential | None = None
        size = spaces.observation.values * shape.frame_stack
        if self.image is not None:
            channels = self.image[2] * shape.frame_stack
            self.convolutions = _convolutions(channels, TRUNKS[shape.trunk])
            size = self.convolutions(self._channels(torch.zeros(1, size))).shape[1]
        linear = NoisyLinear if shape.noisy else nn.Linear
        layers: list[nn.Module] = []
        for hidden in shape.hidden_sizes:
            layers += [linear(size, hidden)]
            layers += [nn.LayerNorm(hidden)] if shape.layer_norm else []
            layers += [nn.ReLU()]
            size = hidden
        self.trunk = nn.Sequential(*layers)
        self.controls = 0 if shape.bins else len(spaces.actions.continuous)
        self.raw = sum(self.branches) + shape.dueling
        # One matrix for all heads: a step should be few, large calls.
        self.heads = linear(size, self.raw * shape.width + self.controls)
        support = torch.linspace(shape.value_low, shape.value_high, shape.width)
        self.register_buffer("support", support, persistent=False)
        self.register_buffer("mix", _dueling_mix(self.branches), persistent=False)

    def forward(self, observation: Tensor) -> Outputs:
        """Judge a batch of observations as they came over the wire: (batch, stack * values)."""
        x = self.scaled(observation)
        if self.convolutions is not None:
            x = self.convolutions(self._channels(x))
        out = self.heads(self.trunk(x))
        width = self.shape.width
        values = out[:, : self.raw * width] if self.controls else out
        atoms = values.view(-1, self.raw, width)
        if self.shape.dueling:
            atoms = self.mix @ atoms
        continuous = torch.tanh(out[:, self.raw * width :]) if self.controls else out[:, :0]
        return Outputs(self.worth(atoms), continuous, atoms)

    def scaled(self, observation: Tensor) -> Tensor:
        """Give observations as the first layer takes them; what is scaled already stays.

        Images of bytes stay so: their first layer scales its few weights instead.
        """
        if self.convolutions is not None or observation.dtype is not torch.uint8:
            return observation
        return observation * self.scale

    def _channels(self, frames: Tensor) -> Tensor:
        """Give stacks of images as convolutions take them: (batch, stack * channels, ...).

        With the channels last in memory convolutions are a quarter faster on the CPU.
        """
        assert self.image is not None
        height, width, channels = self.image
        images = frames.view(-1, self.shape.frame_stack, height, width, channels)
        images = images.permute(0, 1, 4, 2, 3).reshape(
            -1, images.shape[1] * channels, height, width
        )
        return images.float().contiguous(memory_format=torch.channels_last)

    def worth(self, atoms: Tensor) -> Tensor:
        """Give the expected worth of what atoms describe."""
        if self.shape.distribution == "categorical":
            return torch.softmax(atoms, -1) @ self.support
        return atoms.mean(-1) if self.shape.width > 1 else atoms.squeeze(-1)

    def renew_noise(self, generator: torch.Generator | None) -> None:
        """Draw the noise of noisy layers anew; without a generator there is none."""
        for module in self.modules():
            if isinstance(module, NoisyLinear):
                module.renew(generator)

    def linear_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Give weights and biases of a plain MLP that says the same, for quicker play.

        What makes worths out of raw outputs is linear too, as long as it is not a softmax, and
        goes into the last layer.
        """
        if self.image or self.shape.layer_norm or self.shape.distribution == "categorical":
            raise TypeError("a network of this shape is not a plain MLP")
        *trunk, heads = [m for m in (*self.trunk, self.heads) if hasattr(m, "in_features")]
        layers = [(layer.weight.detach(), layer.bias.detach()) for layer in trunk]
        count = self.raw * self.shape.width
        ends = []
        for part in (heads.weight.detach(), heads.bias.detach()):
            values = part[:count].reshape(self.raw, self.shape.width, -1).mean(1)
            values = self.mix @ values if self.shape.dueling else values
            ends.append(torch.cat([values.reshape(-1, *part.shape[1:]), part[count:]]))
        return [*layers, (ends[0], ends[1])]


class NoisyLinear(nn.Module):
    """A linear layer whose weights are noisy by as much as it learns to want.

    Fortunato et al. 2018, eq. 9 to 11: factorised Gaussian noise. Without noise drawn it is a
    plain layer.
    """

    _in_noise: Tensor
    _out_noise: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = in_features**-0.5
        self.weight_mean = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_spread = nn.Parameter(torch.full((out_features, in_features), 0.5 * bound))
        self.bias_mean = nn.Parameter(torch.empty(out_features))
        self.bias_spread = nn.Parameter(torch.full((out_features,), 0.5 * bound))
        nn.init.uniform_(self.weight_mean, -bound, bound)
        nn.init.uniform_(self.bias_mean, -bound, bound)
        self.register_buffer("_in_noise", torch.zeros(in_features), persistent=False)
        self.register_buffer("_out_noise", torch.zeros(out_features), persistent=False)

    @property
    def weight(self) -> Tensor:
        """The weights with the noise of the moment."""
        return self.weight_mean + self.weight_spread * torch.outer(self._out_noise, self._in_noise)

    @property
    def bias(self) -> Tensor:
        """The bias with the noise of the moment."""
        return self.bias_mean + self.bias_spread * self._out_noise

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return nn.functional.linear(x, self.weight, self.bias)

    def renew(self, generator: torch.Generator | None) -> None:
        """Draw other noise, or take it away."""
        for noise in (self._in_noise, self._out_noise):
            if generator is None:
                noise.zero_()
                continue
            drawn = torch.randn(noise.shape, generator=generator)
            noise.copy_(drawn.sign() * drawn.abs().sqrt())


def _dueling_mix(branches: tuple[int, ...]) -> Tensor:
    """Give the matrix of the dueling streams: worth = state's value + advantage - their mean.

    Wang et al. 2016, eq. 9; with several heads each has its own mean (Tavakoli et al. 2018, eq. 1).
    The raw outputs are the advantages, head after head, and last the value of the state.
    """
    means: Tensor = torch.block_diag(  # type: ignore[no-untyped-call]
        *(torch.full((size, size), 1 / size) for size in branches)
    )
    advantage = torch.eye(sum(branches)) - means
    return torch.cat([advantage, torch.ones(sum(branches), 1)], 1)


def flatten_parameters(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Move all parameters and gradients of a module into one tensor each, and give these.

    Clipping, the optimizer, target updates and weight copies are then one call each, however
    many layers there are.
    """
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    gradient = torch.zeros_like(flat)
    at = 0
    for p in parameters:
        end = at + p.numel()
        p.data = flat[at:end].view_as(p)
        p.grad = gradient[at:end].view_as(p)
        at = end
    return flat, gradient


def to_tensors(spaces: Spaces, shape: Shape, flat: Floats) -> dict[str, Tensor]:
    """Give the weights by the names that a checkpoint has for them."""
    network = HybridNetwork(spaces, shape)
    parameters, _ = flatten_parameters(network)
    parameters.copy_(torch.from_numpy(flat))
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def to_flat(spaces: Spaces, shape: Shape, tensors: Mapping[str, Tensor]) -> Floats:
    """Give the weights that ``to_tensors`` named as one array again."""
    network = HybridNetwork(spaces, shape)
    flat, _ = flatten_parameters(network)
    network.load_state_dict(dict(tensors))
    return flat.numpy()


def image_shape(observation: Observation) -> tuple[int, int, int] | None:
    """Give (height, width, channels) of an observation that deserves convolutions."""
    if len(observation.shape) < 2 or min(observation.shape[:2]) < _MIN_IMAGE:
        return None
    height, width = observation.shape[:2]
    return height, width, observation.shape[2] if len(observation.shape) == 3 else 1


# Each convolution's filters, size and stride. Small is that of Mnih et al. 2013, a third of the
# work; nature is that of Mnih et al. 2015.
TRUNKS = {
    "small": ((16, 8, 4), (32, 4, 2)),
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}


def _convolutions(channels: int, sizes: tuple[tuple[int, int, int], ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    kind: type[nn.Conv2d] = PixelConvolution
    for filters, size, stride in sizes:
        layers += [kind(channels, filters, size, stride=stride), nn.ReLU()]
        channels, kind = filters, nn.Conv2d
    return nn.Sequential(*layers, nn.Flatten())


class PixelConvolution(nn.Conv2d):
    """A convolution over bytes that scales its few weights instead of its many pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to pixels from 0 to 255."""
        return F.conv2d(x, self.weight * UINT8_SCALE, self.bias, self.stride)


class Pass(NamedTuple):
    """The memory that observations pass through on their way to the last layer."""

    first: Floats  # where they go in
    steps: list[tuple[Floats, Floats, Floats]]  # input, layer, output
    last: Floats  # the last layer's input


class NumpyInference:
    """Plays with plain matrix products: for an MLP on the CPU.

    Each layer's bias is the last row of its matrix, and each layer's input ends with a 1 for it.
    """

    in_c = False
    mlp: Mlp | None = None

    def __init__(self, spaces: Spaces, shape: Shape, seed: int | None = 0) -> None:
        self._network = HybridNetwork(spaces, shape)  # knows how to read weights
        self._flat, _ = flatten_parameters(self._network)
        self._noise = _dice(seed)
        self._dtype = np.dtype(spaces.observation.dtype)
        self._scale = self._network.scale
        self.split = Split(spaces, shape)
        self._layers: list[Floats] = []  # (in + 1, out)
        self._sizes = (spaces.observation.values * shape.frame_stack, *shape.hidden_sizes)
        self._passes: dict[int, Pass] = {}  # by number of rows; 0: a lone observation

    def load(self, weights: Weights, *, still: bool = False) -> None:
        """Take over a copy of the weights; noisy layers get other noise, or none."""
        self._flat.copy_(torch.from_numpy(weights.flat))
        self._network.renew_noise(None if still else self._noise)
        # Contiguous the other way round: faster products with the few rows of a loop turn.
        self._layers = [
            torch.cat([weight.T, bias[None]]).contiguous().numpy()
            for weight, bias in self._network.linear_layers()
        ]
        # The scale of uint8 observations goes into the first matrix: one pass less per frame.
        self._layers[0][:-1] *= np.float32(self._scale)
        self._passes = {0: self._prepared(())}

    def __call__(self, observation: npt.NDArray[Any]) -> Outputs:
        """Judge a batch of observations: (batch, values)."""
        rows = len(observation)
        first, steps, last = self._pass(rows)
        first[:rows] = observation
        for x, layer, y in steps:
            np.matmul(x, layer, y)
            np.maximum(y, _ZERO, out=y)
        return self.split(np.matmul(last, self._layers[-1])[:rows])

    def best(self, observation: bytes) -> tuple[list[int], list[float]]:
        """Give the best choices, and continuous values, for a lone observation, as it came.

        With the fewest calls: a lone client feels each.
        """
        maximum = np.maximum
        first, steps, last = self._passes[0]
        first[:] = np.frombuffer(observation, self._dtype)
        for x, layer, y in steps:
            x.dot(layer, y)
            maximum(y, _ZERO, out=y)
        return self.split.best(last.dot(self._layers[-1]))

    def _pass(self, rows: int) -> Pass:
        """Give what so many rows pass through, filled up to a multiple of four.

        A matrix product works on four rows at once: without it seven cost more than eight.
        """
        rows = -(-rows // _ROWS_AT_ONCE) * _ROWS_AT_ONCE
        prepared = self._passes.get(rows)
        if prepared is None:
            prepared = self._passes[rows] = self._prepared((rows,))
        return prepared

    def _prepared(self, rows: tuple[int, ...]) -> Pass:
        """Make each layer's input, which ends with a 1, and note where its output goes."""
        inputs = [np.ones((*rows, size + 1), np.float32) for size in self._sizes]
        outputs = [x[..., :-1] for x in inputs]
        steps = list(zip(inputs[:-1], self._layers[:-1], outputs[1:], strict=True))
        return Pass(outputs[0], steps, inputs[-1])


class NativeInference(NumpyInference):
    """Plays with the forward pass in C: the same, several times as fast for a few rows."""

    in_c = True
    mlp: Mlp  # once there are weights

    def __init__(
        self, spaces: Spaces, shape: Shape, library: ctypes.PyDLL, seed: int | None = 0
    ) -> None:
        super().__init__(spaces, shape, seed)
        self._library = library

    def load(self, weights: Weights, *, still: bool = False) -> None:
        """Take over a copy of the weights; noisy layers get other noise, or none."""
        super().load(weights, still=still)
        branches, dtype = self.split.branches, self._dtype.name
        self.mlp = Mlp(self._library, self._layers, branches, dtype)

    def __call__(self, observation: npt.NDArray[Any]) -> Outputs:
        """Judge a batch of observations: (batch, values)."""
        return self.split(self.mlp.judge(observation))

    def best(self, observation: bytes) -> tuple[list[int], list[float]]:
        """Give the best choices, and continuous values, for a lone observation, as it came."""
        return self.split.named(*self.mlp.choose(observation))


class TorchInference:
    """Plays with a torch module of its own: for images, for a GPU, for the rarer shapes."""

    in_c = False
    mlp: Mlp | None = None

    def __init__(self, spaces: Spaces, shape: Shape, device: str, seed: int | None = 0) -> None:
        self._device = torch.device(device)
        self._dtype = np.dtype(spaces.observation.dtype)
        self._network = HybridNetwork(spaces, shape).to(self._device)
        self._flat, _ = flatten_parameters(self._network)
        self._noise = _dice(seed)
        self.split = Split(spaces, shape)

    def load(self, weights: Weights, *, still: bool = False) -> None:
        """Take over a copy of the weights; noisy layers get other noise, or none."""
        self._flat.copy_(torch.from_numpy(weights.flat))
        self._network.renew_noise(None if still else self._noise)

    def __call__(self, observation: npt.NDArray[Any]) -> Outputs:
        """Judge a batch of observations: (batch, values)."""
        with torch.inference_mode():
            out = self._network(torch.tensor(observation, device=self._device))
        return self.split.finished(out.values.cpu().numpy(), out.continuous.cpu().numpy())

    def best(self, observation: bytes) -> tuple[list[int], list[float]]:
        """Give the best choices, and continuous values, for a lone observation, as it came."""
        row = np.frombuffer(observation, self._dtype)[None]
        with torch.inference_mode():
            out = self._network(torch.tensor(row, device=self._device))
        choices, values = self.split.best(out.values[0].cpu().numpy())
        return choices, values or out.continuous[0].tolist()


def _dice(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


class Split:
    """Cuts what a network says into worths of choices and values of continuous controls."""

    def __init__(self, spaces: Spaces, shape: Shape) -> None:
        self._controls = len(spaces.actions.continuous)
        self._bins = shape.bins if self._controls else 0
        branches = shape.branches(spaces)
        self._discrete = sum(branches) - self._bins * self._controls
        self._dummy = self._bins > 0 and not spaces.actions.discrete
        self._middles = from_bins(np.arange(self._bins), self._bins).astype(np.float32)
        # The same for a lone observation, whose few numbers are cut and looked up by Python.
        self.branches = branches
        ends = list(itertools.accumulate(branches))
        self._cuts = [slice(end - size, end) for size, end in zip(branches, ends, strict=True)]
        self._heads = len(branches) - self._controls if self._bins else len(branches)
        self._ends = ends[-1]
        self.middle: list[float] = self._middles.tolist()

    def best(self, out: Floats) -> tuple[list[int], list[float]]:
        """Give the best choice of each head, and each control's value, of a lone observation."""
        return self.named([int(out[cut].argmax()) for cut in self._cuts], out)

    def named(self, best: list[int], out: Floats) -> tuple[list[int], list[float]]:
        """Give the same, where the best of each branch of the outputs is known."""
        if self._bins:
            heads = self._heads
            return best[:heads] or [0], [self.middle[bin_number] for bin_number in best[heads:]]
        return best or [0], np.tanh(out[self._ends :]).tolist() if self._controls else []

    def __call__(self, out: Floats) -> Outputs:
        """Cut raw outputs: worths first, then continuous values before their tanh."""
        if not self._controls:
            return Outputs(out, out[:, self._discrete :])
        if self._bins:
            return self.finished(out, _NOTHING)
        return Outputs(out[..., : self._discrete], np.tanh(out[..., self._discrete :]))

    def finished(self, values: Floats, continuous: Floats) -> Outputs:
        """Cut worths and finished values; a binned control takes the middle of its best bin."""
        if not self._bins:
            return Outputs(values, continuous)
        binned = values[..., self._discrete :].reshape(*values.shape[:-1], -1, self._bins)
        continuous = self._middles[binned.argmax(-1)]
        if self._dummy:
            return Outputs(np.zeros((*values.shape[:-1], 1), np.float32), continuous)
        return Outputs(values[..., : self._discrete], continuous)


def from_bins(bin_number: Any, bins: int) -> Any:
    """Give the values, in -1..1, that bins stand for."""
    return bin_number * (2.0 / (bins - 1)) - 1.0


def to_bins(value: Tensor, bins: int) -> Tensor:
    """Give the bin nearest to each value in -1..1."""
    return ((value.clamp(-1, 1) + 1) * ((bins - 1) / 2)).round().long()


Inference = NumpyInference | TorchInference


def make_inference(spaces: Spaces, shape: Shape, device: str, seed: int | None = 0) -> Inference:
    """Choose the faster way to play for these spaces on this device.

    The seed is that of noisy layers; None plays without their noise.
    """
    plain = image_shape(spaces.observation) is None and not shape.layer_norm
    if device == "cpu" and plain and shape.distribution != "categorical":
        library = native.library()
        if library is not None:
            return NativeInference(spaces, shape, library, seed)
        return NumpyInference(spaces, shape, seed)
    return TorchInference(spaces, shape, device, seed)
