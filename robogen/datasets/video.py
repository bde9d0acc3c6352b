"""Frames to and from video files, through the ffmpeg that comes with imageio-ffmpeg."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from robogen.errors import RecordsError

Codec = Literal["h264", "hevc", "av1"]

KEYFRAMES = 2
"""Frames from one keyframe to the next: LeRobot's choice, which makes single frames quick to
reach."""
_ENCODERS: Mapping[str, tuple[str, ...]] = {
    "h264": ("libx264", "-crf", "18", "-bf", "0"),
    "hevc": ("libx265", "-crf", "18", "-bf", "0", "-x265-params", "log-level=error:bframes=0"),
    "av1": ("libsvtav1", "-crf", "24", "-preset", "8"),
}
"""ffmpeg's encoder and its options, by codec. Without B-frames the first frame is at time 0."""


def rate(fps: float) -> Fraction:
    """A frame rate as the ratio that video files hold."""
    return Fraction(fps).limit_denominator(1001)


class VideoWriter:
    """Encodes equally sized frames into an MP4 file; use it in a ``with``.

    Args:
        file: The file to write. It is complete after the ``with``, and removed after an error.
        width: Of the frames [px]; even, because colour has half the resolution.
        height: The same.
        fps: Frame rate [Hz].
        codec: How frames are compressed.
    """

    def __init__(
        self, file: Path, *, width: int, height: int, fps: float, codec: Codec = "h264"
    ) -> None:
        self.file = file
        self.frames = 0
        self._shape = (height, width, 3)
        encoder, *options = _ENCODERS[codec]
        ratio = rate(fps)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [
                imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", "-nostdin",
                "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
                "-framerate", f"{ratio.numerator}/{ratio.denominator}", "-i", "pipe:0", "-an",
                "-c:v", encoder, *options, "-g", str(KEYFRAMES), "-pix_fmt", "yuv420p",
                "-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart",
                str(file),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for us; we stop it ourselves
        )  # fmt: skip

    def write(self, frame: NDArray[np.uint8]) -> None:
        """Add a frame (height, width, 3).

        Raises:
            RecordsError: ffmpeg gave up, e.g. because the disk is full.
        """
        if frame.shape != self._shape:
            raise ValueError(f"frame of shape {frame.shape}, not {self._shape}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.ascontiguousarray(frame).data)
        except (BrokenPipeError, OSError) as error:
            raise self._failed() from error
        self.frames += 1

    def _failed(self) -> RecordsError:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return RecordsError(
            f"Cannot write the video {self.file} ({lines[-1] if lines else 'ffmpeg stopped'}). "
            "Check the free space and that you may write there, and run the same command again."
        )

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        assert self._process.stdin is not None
        try:
            if error is None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
                if self._process.wait() != 0:
                    raise self._failed()
            return False
        finally:
            whole = self._process.poll() == 0 and error is None
            if self._process.poll() is None:
                self._process.kill()
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._log.close()
            if not whole:
                with contextlib.suppress(OSError):
                    self.file.unlink(missing_ok=True)


def read(file: Path, *, start_s: float, count: int, fps: float) -> Iterator[NDArray[np.uint8]]:
    """Decode consecutive frames (H, W, 3), any codec that ffmpeg knows.

    Args:
        file: The video.
        start_s: Time of the first one [s].
        count: How many.
        fps: Frame rate; half a frame is the tolerance of ``start_s``.

    Raises:
        RecordsError: There is no such file, or it is damaged or too short.
    """
    if not file.is_file():
        raise RecordsError(
            f"The video {file} is missing. Copy or download the whole dataset, its videos included."
        )
    seek = start_s - 0.5 / fps
    words = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin",
        *(["-ss", f"{seek:.6f}"] if seek > 0 else []), "-i", str(file), "-an",
        *_no_resampling(), "-frames:v", str(count),
        "-pix_fmt", "rgb24", "-c:v", "ppm", "-f", "image2pipe", "pipe:1",  # frames with their size
    ]  # fmt: skip
    given = 0
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        assert process.stdout is not None
        try:
            while given < count and (frame := _picture(process.stdout)) is not None:
                yield frame
                given += 1
        finally:
            if given < count:  # it failed, or nobody wants the rest
                process.kill()
            process.stdout.close()
            process.wait()
        if given == count:
            return
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    said = f": {lines[-1]}" if lines else ""
    raise RecordsError(
        f"The video {file} is damaged or cut off ({count} frames from {start_s:.3f} s on are "
        f"needed, {given} could be read{said}). Copy or download it again."
    )


def _picture(stream: IO[bytes]) -> NDArray[np.uint8] | None:
    """The next binary PPM of a stream as (H, W, 3); None at its end."""
    header = [stream.readline() for _ in range(3)]
    if header[0] != b"P6\n" or not header[2]:
        return None
    width, height = map(int, header[1].split())
    data = stream.read(3 * width * height)
    if len(data) < 3 * width * height:
        return None
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def _no_resampling() -> list[str]:
    """Every frame once, whatever the container says of their times."""
    found = re.match(r"n?(\d+)", imageio_ffmpeg.get_ffmpeg_version())
    old = found is not None and int(found[1]) < 5
    return ["-vsync", "0"] if old else ["-fps_mode", "passthrough"]
