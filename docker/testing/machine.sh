#!/usr/bin/env bash
# Prepares this machine to build and run the containers. Prints lines of `export NAME=value`, including the flags with
# which pip in `podman build` finds this machine's index. If containers cannot run here it prints why and exits with 75,
# and the caller skips the test.
#
#   machine.sh            packages (by apt, as root, where they are missing), configuration, bases
#   machine.sh --stand-ins  make the bases from Debian packages even if a registry can be reached
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
work=${FOLTR_TEST_CONTAINERS:-/var/cache/foltr-containers}
# Without digests, by short names: from podman's configured registries, or else made here.
mapfile -t bases < <(sed -n -E 's/^(ARG PYTHON|FOLTR_(MOSQUITTO|POSTGRES)_IMAGE)=([^@]+).*/\3/p' \
    "$here/../Dockerfile" "$here/../.env")

say() { echo "containers: $*" >&2; }
unable() { echo "$*"; exit 75; }

[ "$(id -u)" = 0 ] || unable "needs root (rootless podman is not tried)"
[ -e /etc/debian_version ] || unable "the recipe is for Debian"
mkdir -p "$work"

# Debian's podman prefers crun, which refuses machines with both versions of cgroups; netavark calls iptables.
wanted=(podman buildah runc netavark aardvark-dns iptables catatonit debootstrap iproute2)
missing=()
for package in "${wanted[@]}"; do
    dpkg-query --show --showformat '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"; } >"$work/apt.log" 2>&1 || unable "apt could not install ${missing[*]} (see $work/apt.log)"
fi

# Root without CAP_SYS_RESOURCE cannot raise limits, and podman's defaults are higher than most machines'.
least() { [ "$1" != unlimited ] && [ "$1" -lt "$2" ] && echo "$1" || echo "$2"; }
files=$(least "$(ulimit -Hn)" 65536) processes=$(least "$(ulimit -Hu)" 16384)
cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
CONF
export CONTAINERS_CONF=$work/containers.conf

# pip's settings as a file and its folders as mounts stay out of images. The OCI format has no health checks.
flags=(--network=host --pull=never --format=docker)
python3 -m pip config list >"$work/pip.list" 2>/dev/null || true
python3 - "$work/pip.list" "$work/pip.conf" >"$work/pip.mounts" <<'PYTHON'
import ast
import sys
from pathlib import Path

settings = {}
for line in Path(sys.argv[1]).read_text().splitlines():
    name, _, value = line.partition("=")
    settings.setdefault(name.rpartition(".")[2], " ".join(ast.literal_eval(value).split()))  # variables win
Path(sys.argv[2]).write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
folders = set()
for word in " ".join(settings.values()).split():
    path = Path(word.removeprefix("file://"))
    if path.is_absolute() and path.exists():
        folders.add(path.parent if path.name == "simple" else path)  # an index refers to files beside it
print("\n".join(map(str, sorted(folders))))
PYTHON
flags+=("--volume=$work/pip.conf:/etc/pip.conf:ro")
while read -r folder; do
    [ -z "$folder" ] || flags+=("--volume=$folder:$folder:ro")
done <"$work/pip.mounts"

stand_in() { # stand_in IMAGE: build it from Debian packages, under the real name
    local name=${1##*/}
    name=${name%%:*} name=${name#eclipse-}
    podman build --network=host --pull=never --format=docker "--volume=$work/apt.conf:/etc/apt/apt.conf.d/99machine:ro" \
        --volume=/etc/ssl/certs/ca-certificates.crt:/run/authorities.crt:ro \
        --quiet --label org.foltr.stand-in="$recipe" --file "$here/bases/$name.Containerfile" --tag "$1" "$here/bases" \
        >"$work/$name.log" 2>&1 || { tail -20 "$work/$name.log" >&2; unable "the stand-in for $1 could not be built"; }
    say "$1 is a stand-in made of Debian packages"
}

recipe=$(cat "$here"/bases/* | sha256sum | cut -c 1-16)
made_of() { podman image inspect --format '{{index .Config.Labels "org.foltr.stand-in"}}' "$1" 2>/dev/null || echo none; }
wanting=()
for image in "${bases[@]}"; do
    made=$(made_of "$image")
    case $made in
        none) [ "${1:-}" != --stand-ins ] && podman pull --quiet "$image" >/dev/null 2>&1 || wanting+=("$image") ;;
        "$recipe" | "" | "<no value>") ;; # made by this recipe, or the real one
        *) wanting+=("$image") ;;
    esac
done
if [ ${#wanting[@]} -gt 0 ]; then
    apt-config dump | grep -E '^Acquire::(https?|Check)' >"$work/apt.conf" || true
    echo 'Acquire::https::CaInfo "/run/authorities.crt";' >>"$work/apt.conf"
    if ! podman image exists localhost/foltr-testing-debian; then
        . /etc/os-release
        mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' |
            awk -v suite="$VERSION_CODENAME" '$2 == suite && $3 == "Debian" {print $1; exit}')
        [ -n "$mirror" ] || unable "no Debian mirror in this machine's apt sources"
        root=$(mktemp --directory "$work/debian.XXXXXX")
        # dpkg waits for the disk after every file, and memory does not make it wait.
        mount -t tmpfs -o size=1g,mode=755 foltr-debian "$root" 2>/dev/null || true
        debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
            { umount "$root" 2>/dev/null || true; rm -rf "$root"; unable "debootstrap failed (see $work/debootstrap.log)"; }
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/{doc,man,locale}/* "$root"/var/lib/apt/lists/*
        printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\nforce-unsafe-io\n' \
            >"$root/etc/dpkg/dpkg.cfg.d/small"
        tar --directory "$root" --numeric-owner --create . | podman import - localhost/foltr-testing-debian >/dev/null 2>&1
        umount "$root" 2>/dev/null || true
        rm -rf "$root"
    fi
    for image in "${wanting[@]}"; do stand_in "$image"; done
fi

# A machine that cannot run a container on a separate bridge is not the project's fault.
ip netns del foltr-probe 2>/dev/null || true
ip netns add foltr-probe 2>/dev/null || unable "network namespaces cannot be made here"
ip -n foltr-probe link set lo up
nsenter --net=/run/netns/foltr-probe podman run --rm --pull=never "${bases[0]}" true >"$work/probe.log" 2>&1 ||
    { ip netns del foltr-probe; unable "podman cannot run a container here: $(tail -1 "$work/probe.log")"; }
ip netns del foltr-probe

printf 'export CONTAINERS_CONF=%q\n' "$CONTAINERS_CONF"
printf 'export FOLTR_BUILD_FLAGS=%q\n' "${flags[*]}"
