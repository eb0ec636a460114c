#!/usr/bin/env bash
# Prepares a machine for `make demo` and `make test`: a Python environment, tools, a container engine.
#
#   scripts/setup.sh python                                .venv from requirements-dev.lock
#   scripts/setup.sh tools                                 mmdebstrap and the Debian keyring
#   scripts/setup.sh podman                                podman with crun, for the tests of its run lines
#   scripts/setup.sh engine                                a Docker engine that can do the job
#   scripts/setup.sh with-engine [--stop-after] CMD ...    the same, then CMD with access to it
#   scripts/setup.sh stop                                  end the engine that this working copy started
#
# It asks nothing, says what it installs before it does, and changes no existing Docker configuration.
# Each decision is a function of its own, so that the tests can source this file and ask one by one.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
STATE="$ROOT/.rocm-torch/engine"
OS_RELEASE=/etc/os-release
APT_ETC=/etc/apt
DAEMON_JSON=/etc/docker/daemon.json
SBIN_DOCKERD=/usr/sbin/dockerd # not on the PATH of ordinary users
SYSTEMD_RUNS=/run/systemd/system
APPARMOR=/sys/module/apparmor/parameters/enabled
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
TRIXIE_KEY=/usr/share/keyrings/debian-archive-trixie-stable.gpg
DEFAULT_ARCHIVE=http://deb.debian.org/debian
LEAST_ENGINE=26     # the first whose BuildKit rewrites timestamps in OCI layouts
LEAST_BUILDX=0.13   # the first with --progress rawjson
START_SECONDS=90
ENGINE_STARTED=no
STARTER=

say() { printf 'setup: %s\n' "$*" >&2; }

# Ends with one message: the first argument is what is wrong, each other one a way out.
give_up() {
    local way
    printf 'setup: %s\n' "$1" >&2
    shift
    for way in "$@"; do printf '  - %s\n' "$way" >&2; done
    exit 1
}

# Machine ------------------------------------------------------------------------------------------

is_root() { [[ $(id -u) -eq 0 ]]; }
can_be_root() { is_root || sudo -n true 2>/dev/null; }
as_root() { if is_root; then "$@"; else sudo -n "$@"; fi; }
has_systemd() { [[ -d $SYSTEMD_RUNS ]]; }

os_field() ( # NAME -> its value in os-release
    # shellcheck disable=SC1090
    [[ -r $OS_RELEASE ]] && . "$OS_RELEASE"
    printf '%s' "${!1-}"
)

# debian-12 | debian | ubuntu | other; "debian" is 13 and later, testing and unstable included.
distribution() {
    local id version
    id=$(os_field ID)
    version=$(os_field VERSION_ID)
    case "$id:${version%%.*}" in
        debian:12) echo debian-12 ;;
        debian:[1-9] | debian:1[01]) echo other ;;
        debian:*) echo debian ;;
        ubuntu:*) echo ubuntu ;;
        *) echo other ;;
    esac
}

# Whether dotted version $1 is at least $2.
at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# The address from which this machine takes suite $1 (a site mirror stays in use); nothing if none.
archive_of() {
    local files=()
    mapfile -t files < <(
        find "$APT_ETC" -maxdepth 2 \( -path "$APT_ETC/sources.list" \
            -o -path "$APT_ETC/sources.list.d/*.list" \
            -o -path "$APT_ETC/sources.list.d/*.sources" \) -type f 2>/dev/null | sort
    )
    ((${#files[@]})) || return 0
    awk -v wanted="$1" '
        function paragraph(   i, n, names) {
            if (enabled && binary && uri != "") {
                n = split(suites, names, /[ \t]+/)
                for (i = 1; i <= n; i++) if (names[i] == wanted && found == "") found = uri
            }
            uri = suites = ""; enabled = 1; binary = 1
        }
        FNR == 1 { paragraph() }
        FILENAME ~ /\.sources$/ {
            if ($0 ~ /^[ \t]*$/) { paragraph(); next }
            if ($0 ~ /^#/) next
            name = tolower($1)
            if (name == "types:") binary = ($0 ~ /[ \t]deb([ \t]|$)/)
            if (name == "uris:") uri = $2
            if (name == "suites:") { suites = $0; sub(/^[^:]*:[ \t]*/, "", suites) }
            if (name == "enabled:" && tolower($2) == "no") enabled = 0
            next
        }
        $1 == "deb" {
            sub(/\[[^]]*\]/, "")
            $0 = $0
            if ($3 == wanted && found == "") found = $2
        }
        END { paragraph(); if (found != "") print found }
    ' "${files[@]}"
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

apt_install() { # PACKAGE ...
    say "installs from this machine's package archive: $*"
    apt_get update >&2 && apt_get install -y --no-install-recommends "$@" >&2
}

# Installs packages that are missing, or says which command does.
need_packages() { # PURPOSE PACKAGE ...
    local purpose=$1
    shift
    [[ $(distribution) != other ]] \
        || give_up "$purpose is missing, and this script installs on Debian 12 or later and Ubuntu only." \
            "install what your distribution has in place of: $*"
    can_be_root || give_up "$purpose is missing, and this user can install nothing." \
        "run: sudo apt-get install -y --no-install-recommends $*"
    apt_install "$@" || give_up "$purpose could not be installed (see above)." \
        "check that the package archive is reachable, then run the same command again"
}

# One set-up at a time in a working copy; a second one waits for the first.
take_turn() {
    mkdir -p "$STATE"
    exec 9>"$ROOT/.rocm-torch/setup.lock"
    flock -n 9 && return
    say "another set-up is running in this working copy; waits for it"
    flock -w 1800 9 || give_up "another set-up has been running here for half an hour." \
        "end it, then run the same command again"
}
end_turn() { exec 9>&-; }

# Python -------------------------------------------------------------------------------------------

python_fits() { # PROGRAM
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local program
    for program in python3 python3.13 python3.12 python3.11 python3.14; do
        if command -v "$program" >/dev/null && python_fits "$program"; then
            command -v "$program"
            return
        fi
    done
    return 1
}

python_packages() {
    if [[ $(distribution) == ubuntu ]] && ! at_least "$(os_field VERSION_ID)" 23.04; then
        echo python3.11 python3.11-venv
    else
        echo python3 python3-venv
    fi
}

python_stamp() { # PROGRAM
    { "$1" --version && cat "$ROOT/pyproject.toml" "$ROOT/requirements-dev.lock" 2>/dev/null; } \
        | sha256sum | cut -d ' ' -f 1
}

setup_python() {
    local python venv="$ROOT/.venv" stamp pip
    if ! python=$(find_python); then
        # shellcheck disable=SC2046
        need_packages "Python 3.11 or later with venv" $(python_packages)
        python=$(find_python) || give_up "no Python 3.11 or later with venv was found after the install." \
            "install one and put it on PATH as python3"
    fi
    if "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        stamp=$(python_stamp "$venv/bin/python")
        [[ $(cat "$venv/.rocm-torch-stamp" 2>/dev/null) != "$stamp" ]] || return 0
    else
        say "makes the Python environment .venv with $python"
        "$python" -m venv --clear "$venv"
        stamp=$(python_stamp "$venv/bin/python")
    fi
    pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
    if [[ -f $ROOT/requirements-dev.lock ]]; then
        say "installs the locked Python packages of requirements-dev.lock into .venv"
        "${pip[@]}" --require-hashes -r "$ROOT/requirements-dev.lock" \
            && "${pip[@]}" --no-deps -e "$ROOT"
    else
        say "installs the Python packages of pyproject.toml into .venv (there is no lock)"
        "${pip[@]}" -e "${ROOT}[dev]"
    fi || give_up "the Python packages could not be installed (see above)." \
        "check that PyPI or your mirror of it is reachable, then run the same command again"
    printf '%s\n' "$stamp" >"$venv/.rocm-torch-stamp"
}

# Tools --------------------------------------------------------------------------------------------

setup_tools() {
    local missing=()
    command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
    [[ -r $KEYRING ]] || missing+=(debian-archive-keyring)
    ((${#missing[@]} == 0)) || need_packages "what makes a Debian base image" "${missing[@]}"
}

# The tests alone need it: rootless podman keeps groups with crun only.
setup_podman() {
    local missing=() package
    for package in podman crun; do
        command -v "$package" >/dev/null || missing+=("$package")
    done
    command -v newuidmap >/dev/null || missing+=(uidmap)
    ((${#missing[@]} == 0)) || need_packages "podman" "${missing[@]}"
}

# Engine: what is there ----------------------------------------------------------------------------

# Where the Docker client looks: DOCKER_HOST, else its context.
endpoint() {
    if [[ -n ${DOCKER_HOST-} ]]; then
        echo "$DOCKER_HOST"
    else
        docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null || true
    fi
}

# An engine that the user chose, here or elsewhere: no other one is started in its place.
endpoint_is_chosen() {
    case "$(endpoint)" in
        "" | unix:///var/run/docker.sock | unix:///run/docker.sock) return 1 ;;
        *) return 0 ;;
    esac
}

engine_version() { timeout 30 docker version --format '{{.Server.Version}}'; }

has_containerd_store() {
    [[ $(timeout 30 docker info --format '{{json .DriverStatus}}' 2>/dev/null) \
        == *io.containerd.snapshotter.v1* ]]
}

buildx_version() {
    timeout 30 docker buildx version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1
}

# Process ids of engines in this process namespace; one in a container is another's.
dockerd_pids() {
    local folder here
    here=$(readlink /proc/self/ns/pid)
    for folder in /proc/[0-9]*; do
        process_mark "${folder##*/}" >/dev/null || continue
        [[ $(as_root readlink "$folder/ns/pid" 2>/dev/null || echo "$here") == "$here" ]] || continue
        echo "${folder##*/}"
    done
}

# fit | old | no-store | no-buildx | denied | chosen-silent | silent | stopped | none
#   stopped: installed, not running. none: not installed; a client alone is no engine.
engine_state() {
    local answer
    if command -v docker >/dev/null; then
        if answer=$(engine_version 2>/dev/null) && [[ $answer == [0-9]* ]]; then
            if ! at_least "$answer" "$LEAST_ENGINE"; then
                echo old
            elif ! has_containerd_store; then
                echo no-store
            elif ! at_least "$(buildx_version || true)" "$LEAST_BUILDX"; then
                echo no-buildx
            else
                echo fit
            fi
            return
        fi
        answer=$(engine_version 2>&1 || true)
        if [[ ${answer,,} == *"permission denied"* ]]; then echo denied && return; fi
        if endpoint_is_chosen; then echo chosen-silent && return; fi
    elif [[ -n ${DOCKER_HOST-} ]] && endpoint_is_chosen; then
        echo chosen-silent && return
    fi
    if [[ -n $(dockerd_pids) ]]; then
        echo silent
    elif command -v dockerd >/dev/null || [[ -x $SBIN_DOCKERD ]]; then
        echo stopped
    else
        echo none
    fi
}

explain() { # STATE: one message about an engine that is there and cannot be used, then the end
    local restart="sudo systemctl restart docker"
    has_systemd || restart="restart dockerd"
    case "$1" in
        old)
            give_up "the Docker engine that runs is $(engine_version 2>/dev/null); $LEAST_ENGINE or later is needed (its BuildKit makes reproducible OCI layouts). Nothing was changed." \
                "upgrade Docker, or set DOCKER_HOST to another engine"
            ;;
        no-store)
            give_up "the Docker engine that runs does not use the containerd image store, without which it cannot export OCI layouts. Nothing was changed. This line turns it on (images of the present store are hidden until it is turned off again):" \
                "sudo python3 -c 'import json, pathlib; p = pathlib.Path(\"$DAEMON_JSON\"); d = json.loads(p.read_text()) if p.exists() else {}; d.setdefault(\"features\", {})[\"containerd-snapshotter\"] = True; p.write_text(json.dumps(d, indent=2))' && $restart"
            ;;
        no-buildx)
            give_up "the Docker engine that runs is fit, but its buildx plugin is $(buildx_version || echo missing); $LEAST_BUILDX or later is needed. Nothing was changed." \
                "sudo apt-get install docker-buildx   (docker-buildx-plugin where Docker comes from docker.com)"
            ;;
        denied)
            give_up "a Docker engine is there, and this user may not speak to it." \
                "run the same command with sudo" \
                "or: sudo usermod -aG docker $(id -un), then log in again" \
                "or set DOCKER_HOST to an engine of your own"
            ;;
        chosen-silent)
            give_up "the engine that DOCKER_HOST or the Docker context names does not answer: $(endpoint)" \
                "start it, or unset DOCKER_HOST (docker context use default) to use an engine on this machine"
            ;;
        silent)
            give_up "a dockerd is running (process $(dockerd_pids | head -n 1)) and does not answer; a second one beside it would break its network." \
                "wait until it is up, or restart it, then run the same command again"
            ;;
    esac
}

# Engine: install and start ------------------------------------------------------------------------

engine_packages() {
    case "$(distribution)" in
        debian-12) echo docker.io/trixie docker-cli/trixie docker-buildx/trixie ;;
        debian) echo docker.io docker-cli docker-buildx ;;
        ubuntu) echo docker.io docker-buildx ;;
    esac
    # Without its parser an engine on a kernel with AppArmor starts no container.
    if [[ $(cat "$APPARMOR" 2>/dev/null) == Y ]] && ! command -v apparmor_parser >/dev/null; then
        echo apparmor
    fi
}

# apt's options for a second source that lives in folder $1 and leaves no trace in the system's own.
private_apt_options() {
    printf '%s\n' -o "Dir::Etc::SourceList=$1/sources.list" -o "Dir::Etc::SourceParts=$1/none" \
        -o "Dir::Etc::Preferences=$1/preferences" -o "Dir::Etc::PreferencesParts=$1/none" \
        -o "Dir::State::Lists=$1/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
}

# Debian 12's own Docker is too old: sources for it and for Debian 13, the latter for what is asked only.
write_private_sources() { # FOLDER
    local archive security suite
    archive=$(archive_of bookworm)
    archive=${archive:-$DEFAULT_ARCHIVE}
    security=$(archive_of bookworm-security)
    mkdir -p "$1/lists/partial" "$1/none"
    for suite in bookworm bookworm-updates trixie trixie-updates; do
        echo "deb [signed-by=$KEYRING] $archive $suite main"
    done >"$1/sources.list"
    if [[ -n $security ]]; then
        for suite in bookworm-security trixie-security; do
            echo "deb [signed-by=$KEYRING] $security $suite main"
        done >>"$1/sources.list"
    fi
    printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n\n' \
        trixie trixie-updates trixie-security >"$1/preferences"
    chmod -R a+rX "$1"
}

install_from_trixie() ( # PACKAGE ...; a subshell, so that the folder goes whatever happens
    local options=()
    # /var/tmp: apt fetches as a user of its own, who cannot read a folder below a home.
    folder=$(mktemp -d /var/tmp/rocm-torch-apt.XXXXXX)
    trap 'as_root rm -rf -- "$folder"' EXIT
    chmod 0755 "$folder"
    # The old keyring package of a fresh Debian 12 does not know Debian 13's keys.
    [[ -r $TRIXIE_KEY ]] || apt_install debian-archive-keyring || exit 1
    write_private_sources "$folder"
    mapfile -t options < <(private_apt_options "$folder")
    apt_get "${options[@]}" update >&2 \
        && apt_get "${options[@]}" install -y --no-install-recommends "$@" >&2
)

install_engine() {
    local packages
    mapfile -t packages < <(engine_packages | tr ' ' '\n')
    if [[ $(distribution) == other ]]; then
        give_up "no container engine is here, and this script installs one on Debian 12 or later and Ubuntu only (this is $(os_field PRETTY_NAME))." \
            "install Docker $LEAST_ENGINE or later with the containerd image store and buildx, and start it" \
            "or set DOCKER_HOST to such an engine on another machine"
    fi
    can_be_root || give_up "no container engine is here, and this user can install none." \
        "run the same command with sudo" \
        "or ask the administrator for Docker $LEAST_ENGINE or later and membership in the group docker" \
        "or start a rootless Docker of your own and set DOCKER_HOST to its socket" \
        "or set DOCKER_HOST to an engine on another machine (ssh://user@host)"
    say "no container engine is here; installs: ${packages[*]}"
    [[ $(distribution) != debian-12 ]] \
        || say "Debian 12's own is too old: these come from Debian 13, whose sources are used for this once and not added"
    if [[ ! -e $DAEMON_JSON ]]; then
        say "writes $DAEMON_JSON, which turns the containerd image store on"
        as_root mkdir -p "$(dirname "$DAEMON_JSON")"
        printf '{"features": {"containerd-snapshotter": true}}\n' | as_root tee "$DAEMON_JSON" >/dev/null
    fi
    if [[ $(distribution) == debian-12 ]]; then
        install_from_trixie "${packages[@]}"
    else
        apt_install "${packages[@]}"
    fi || give_up "the container engine could not be installed (see above)." \
        "check that the package archive is reachable, then run the same command again"
    if ! is_root; then
        say "adds $(id -un) to the group docker, whose members may use the engine (and so are as good as root)"
        as_root usermod -aG docker "$(id -un)"
    fi
}

# "pid start-time" of a running dockerd; the time tells it from a later process with the same number.
process_mark() { # PID
    local stat
    [[ $(cat "/proc/$1/comm" 2>/dev/null) == dockerd ]] || return 1
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    read -ra stat <<<"${stat##*) }"
    [[ ${stat[0]} != Z ]] || return 1 # ended; where no init runs, nobody collects it
    echo "$1 ${stat[19]}"
}

start_engine() {
    can_be_root || give_up "Docker is installed and not running, and this user cannot start it." \
        "run the same command with sudo" "or set DOCKER_HOST to a running engine"
    if has_systemd; then
        say "starts Docker through systemd"
        as_root systemctl start docker || give_up "systemd could not start Docker." "see: journalctl -u docker"
    elif [[ -z $(dockerd_pids) ]]; then # the package's own script may have started it
        say "starts dockerd (no init system runs here); its log: $STATE/dockerd.log"
        mkdir -p "$STATE"
        # Descriptor 9 is the lock of this set-up: the engine must not inherit it.
        # shellcheck disable=SC2024
        as_root setsid dockerd >"$STATE/dockerd.log" 2>&1 </dev/null 8>&- 9>&- &
        STARTER=$!
        ENGINE_STARTED=yes
    fi
}

wait_for_engine() {
    local end=$((SECONDS + START_SECONDS)) state pid
    while ((SECONDS < end)); do
        state=$(engine_state)
        case "$state" in
            stopped | silent | none) sleep 1 ;;
            *) break ;;
        esac
        [[ -z $STARTER ]] || [[ -d /proc/$STARTER ]] || break # it ended at once: its log says why
    done
    if [[ $ENGINE_STARTED == yes ]]; then
        pid=$(dockerd_pids | head -n 1)
        [[ -z $pid ]] || process_mark "$pid" >"$STATE/dockerd.pid"
    fi
    case "$state" in
        stopped | silent | none)
            [[ ! -f $STATE/dockerd.log ]] || tail -n 20 "$STATE/dockerd.log" >&2
            stop_engine
            give_up "the engine was started and did not come up (waited up to $START_SECONDS s)." "see its log: $STATE/dockerd.log, or journalctl -u docker"
            ;;
    esac
}

# Whether the account is in group docker already, and only this session does not know yet.
may_join_group() { [[ " $(id -nG "$(id -un)") " == *" docker "* && " $(id -nG) " != *" docker "* ]]; }

setup_engine() {
    local state
    state=$(engine_state)
    case "$state" in
        none)
            install_engine
            start_engine
            wait_for_engine
            ;;
        stopped)
            start_engine
            wait_for_engine
            ;;
    esac
    if may_join_group; then
        sg docker -c "$(printf '%q ' "${BASH_SOURCE[0]}" check)"
    else
        check_engine
    fi
}

# Says which engine is used; ends with one message where none can be. Ends what was started in vain.
check_engine() {
    local state
    state=$(engine_state)
    if [[ $state != fit ]]; then
        [[ $ENGINE_STARTED == no ]] || trap stop_engine EXIT
        explain "$state"
    fi
    say "uses the Docker engine $(engine_version) at $(endpoint)"
}

# Ends the engine that this working copy started, and no other.
stop_engine() {
    local pid mark
    [[ -f $STATE/dockerd.pid ]] || return 0
    mark=$(cat "$STATE/dockerd.pid")
    pid=${mark%% *}
    if [[ -n $pid && $(process_mark "$pid" || true) == "$mark" ]]; then
        say "stops the engine that this working copy started (process $pid)"
        as_root kill "$pid"
        local end=$((SECONDS + 60))
        while ((SECONDS < end)) && process_mark "$pid" >/dev/null; do sleep 0.2; done
    fi
    rm -f "$STATE/dockerd.pid"
}

# Runs a command with access to the engine; a shared lock keeps the engine up while anyone uses it.
with_engine() {
    local stop=no status=0
    if [[ ${1-} == --stop-after ]]; then
        stop=yes
        shift
    fi
    (($#)) || give_up "with-engine needs a command." "scripts/setup.sh with-engine [--stop-after] CMD ..."
    take_turn
    exec 8>"$STATE/in-use.lock"
    flock -s 8
    setup_engine
    end_turn
    [[ $stop == no ]] || trap stop_if_last EXIT
    if may_join_group; then
        sg docker -c "$(printf '%q ' "$@")" 8>&- || status=$?
    else
        "$@" 8>&- || status=$?
    fi
    return "$status"
}

stop_if_last() {
    [[ $ENGINE_STARTED == yes ]] || return 0
    if flock -n -x 8; then
        stop_engine
    else
        say "another run still uses the engine; 'make down' ends it later"
    fi
}

main() {
    set -euo pipefail
    local verb=${1-}
    shift || true
    case "$verb" in
        python | tools | podman | engine)
            take_turn
            "setup_$verb"
            ;;
        with-engine) with_engine "$@" ;;
        check) check_engine ;; # for this script itself, in a session that has just joined group docker
        stop)
            take_turn
            stop_engine
            ;;
        *)
            sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
            exit 64
            ;;
    esac
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
