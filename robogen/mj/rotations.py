"""Rotation matrices and rotation vectors, by MuJoCo's own functions: microseconds each."""

from __future__ import annotations

import math

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray


def matrix_of(vector: ArrayLike) -> NDArray[np.float64]:
    """Rotation matrix (3, 3) of a rotation vector (3,) [rad]."""
    turn = np.asarray(vector, dtype=np.float64)
    angle = math.sqrt(turn @ turn)
    quat_wxyz, matrix = np.empty(4), np.empty(9)
    mujoco.mju_axisAngle2Quat(quat_wxyz, turn / angle if angle > 0.0 else turn, angle)
    mujoco.mju_quat2Mat(matrix, quat_wxyz)
    return matrix.reshape(3, 3)


def vector_of(matrix: ArrayLike) -> NDArray[np.float64]:
    """Rotation vector (3,) [rad], at most half a turn long, of a rotation matrix (3, 3)."""
    vector = np.empty(3)
    mujoco.mju_quat2Vel(vector, _quaternion(matrix), 1.0)
    return vector


def orthonormal(matrix: ArrayLike) -> NDArray[np.float64]:
    """A rotation matrix (3, 3) freed of what rounding added to it."""
    clean = np.empty(9)
    mujoco.mju_quat2Mat(clean, _quaternion(matrix))
    return clean.reshape(3, 3)


def _quaternion(matrix: ArrayLike) -> NDArray[np.float64]:
    """Unit quaternion (w, x, y, z) of a rotation matrix (3, 3)."""
    quat_wxyz = np.empty(4)
    mujoco.mju_mat2Quat(quat_wxyz, np.ascontiguousarray(matrix, dtype=np.float64).reshape(9))
    mujoco.mju_normalize4(quat_wxyz)
    return quat_wxyz
