"""Pins the images of others by digest: ``make pin-images`` asks the registry for what each tag means today.

It writes the digests into docker/.env and docker/Dockerfile, which are the only files that name these images.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FILES = tuple(Path(__file__).with_name(name) for name in (".env", "Dockerfile"))
_IMAGE = re.compile(r"^(?:ARG )?(PYTHON|FOLTR_\w+_IMAGE)=([^\s@]+)(@\S+)?$", re.MULTILINE)


def images_of(text: str) -> dict[str, str]:
    """Return the images that a file names, with their tags and without digests, by variable."""
    return {name: tagged for name, tagged, _ in _IMAGE.findall(text)}


def pinned(text: str, digest_of: Callable[[str], str]) -> str:
    """Return a file's text with each image at the digest that ``digest_of`` gives for its tag."""
    return _IMAGE.sub(lambda found: f"{found[0].removesuffix(found[3] or '')}@{digest_of(found[2])}", text)


def resolver() -> Callable[[str], str] | None:
    """Return who resolves tags on this machine: Docker with buildx, else podman, else None."""
    if shutil.which("docker"):
        buildx = subprocess.run(("docker", "buildx", "version"), capture_output=True, check=False)
        if buildx.returncode == 0:
            return docker_digest
    return podman_digest if shutil.which("podman") else None


def docker_digest(image: str) -> str:
    """Return the digest of an image for all platforms. Docker asks the registry and fetches no layer."""
    return _said("docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image)


def podman_digest(image: str) -> str:
    """Return the digest of an image that podman pulls, unless it exists only here."""
    if not image.startswith("localhost/"):
        _said("podman", "pull", "--quiet", image)
    (found,) = json.loads(_said("podman", "image", "inspect", image))
    digests = [each.rpartition("@")[2] for each in found["RepoDigests"]]
    # The digest of all platforms, if the registry has several: the other one is of this machine's.
    return next((digest for digest in digests if digest != found["Digest"]), found["Digest"])


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def main() -> None:
    """Pin every image. Nothing is written if one cannot be resolved."""
    if not (digest_of := resolver()):
        raise SystemExit("pinning needs Docker with buildx, or podman")
    texts = {file: pinned(file.read_text(encoding="utf-8"), digest_of) for file in FILES}
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        sys.stdout.writelines(f"{file.name}: {found[0].partition('=')[2]}\n" for found in _IMAGE.finditer(text))


if __name__ == "__main__":
    main()
