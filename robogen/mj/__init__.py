"""The only code that touches mjModel and mjData fields, element ids and OpenGL."""

APT = "apt-get install -y --no-install-recommends libegl1 libopengl0 libgl1-mesa-dri libosmesa6"
"""Installs both offscreen OpenGL backends on Debian."""
