"""Package archives: keys, pins and suites, as apt and dnf tell of them."""

from __future__ import annotations

from builder.plan.causes.model import Pattern, Rule, regex

# Packages that both a distribution and AMD's archive have, and what depends on them.
_ROCM_NAME = (
    r"(?:rocm[a-z0-9-]*|roc[a-z]+[a-z0-9-]*|hip[a-z0-9-]*|hsa[a-z0-9-]*|comgr|miopen[a-z0-9-]*"
    r"|migraphx[a-z0-9-]*|rccl[a-z0-9-]*|half)"
)
_SIGNED_BY = (
    "write the key to /etc/apt/keyrings/NAME.asc and name it in the list:"
    " `deb [signed-by=/etc/apt/keyrings/NAME.asc] URL SUITE COMPONENT`"
)
_KEY_URL = r"(?:https?://\S*(?:key|gpg|asc)\S*)"

RULES: tuple[Rule, ...] = (
    Pattern(
        code="REPO_KEY_404",
        seen=regex(
            r"(?:curl: \(22\)[^\n]{0,200}?error: |\bERROR |HTTP request sent[^\n]{0,60}?\.\.\. "
            r"|server returned error: HTTP/[0-9.]+ )(?P<status>40[34]|410)\b"
        ),
        beside=regex(r"no valid OpenPGP data|gpg[:.]|apt-key|keyring|\.gpg\b|\.asc\b"),
        what="the key of a package repository could not be fetched: HTTP {status}",
        why="a pipe has the exit status of its last command, so what gpg says of the empty file"
        " is a result of this and not the cause",
        fix="correct the address of the key; fetch it with `curl -fsSL --retry 3` under"
        " `set -o pipefail`, and compare its fingerprint",
    ),
    Pattern(
        code="REPO_KEY_UNUSABLE",
        seen=regex(r"gpg: no valid OpenPGP data found"),
        unless=regex(
            r"(?:error|HTTP\S*):? (?:40[34]|410)\b|Could not resolve|Failed to connect|timed out"
        ),
        what="what was fetched as the key of a package repository is no key",
        why="an error page or an empty answer went through the pipe to gpg",
        fix="fetch the key with `curl -fsSL` under `set -o pipefail`, so that the download says"
        " what went wrong",
    ),
    Pattern(
        code="APT_KEY_REMOVED",
        seen=regex(r"(?P<line>apt-key: (?:command )?not found|apt-key: No such file)"),
        what="apt-key is not there: {line}",
        why="Debian 13 and newer Ubuntu releases have removed it",
        fix=_SIGNED_BY,
    ),
    Pattern(
        code="APT_KEY_EXPIRED",
        seen=regex(
            r"(?:(?P<url>https?://\S+)[^\n]*)?(?P<kind>EXPKEYSIG|KEYEXPIRED)\s+(?P<key>[0-9A-F]*)"
        ),
        what="the key {key} of the package repository {url} has expired in this image ({kind})",
        why="the publisher extended the key, and the base image carries the old copy",
        fix="fetch the key anew into its keyring file before the first `apt-get update`, or use a"
        " newer base image",
    ),
    Pattern(
        code="APT_KEY_MISSING",
        seen=regex(r"(?:(?P<url>https?://\S+)[^\n]*)?NO_PUBKEY\s+(?P<key>[0-9A-F]*)"),
        what="the package repository {url} is signed by the key {key}, which this image lacks",
        fix=_SIGNED_BY,
    ),
    Pattern(
        code="APT_PIN_MISSING",
        seen=regex(
            rf"^[^\n]*\b(?P<package>{_ROCM_NAME})\s*:\s*(?:Depends|PreDepends):\s*(?P<needs>\S+)"
            r"[^\n]*but (?P<version>\S+) is to be installed"
        ),
        beside=regex(r"held broken packages|unmet dependencies|pkgProblemResolver"),
        what="{package} needs {needs} of AMD's repository, and apt takes {version} of the"
        " distribution",
        why="distributions have packages of the same names, and without a pin apt mixes both",
        fix="write /etc/apt/preferences.d/rocm-pin-600 with `Package: *`, `Pin: release"
        " o=repo.radeon.com`, `Pin-Priority: 600`, and check that the file is not empty",
    ),
    Pattern(
        code="REPO_SUITE_MISSING",
        seen=regex(
            r"The repository '(?P<repository>[^'\n]+)' (?:does not have a|no longer has a) Release"
            r" file"
        ),
        what="the package repository {repository} does not exist",
        why="not every release of ROCm is published for every distribution, and paths of old ones"
        " move",
        fix="take a combination that `rocm-torch matrix` lists, and note that 7.2 and 7.2.0 are"
        " different paths",
    ),
    Pattern(
        code="REPO_SUITE_MISSING",
        seen=regex(
            r"(?:Failed to download metadata for repo|Cannot download repomd\.xml)[^\n]*"
            r"(?P<repository>'[^'\n]+')?"
        ),
        beside=regex(r"\b404\b"),
        what="a package repository of dnf answers with 404: it does not exist",
        why="not every release of ROCm is published for every distribution",
        fix="take a combination that `rocm-torch matrix` lists",
    ),
    Pattern(
        code="ARCHIVE_MOVED",
        seen=regex(
            r"File has unexpected size|Hash Sum mismatch|Mirror sync in progress"
            r"|Failed to fetch \S+\.deb\s+404"
        ),
        what="the package archive changed while it was read: its lists and packages disagree",
        why="a mirror was being updated, or a cache before it holds an old part",
        fix="run the same command again in some minutes; `rocm-torch lock --update` if it stays",
        retryable=True,
        wait=300,
    ),
    Pattern(
        code="ARCHIVE_NOT_VALID_YET",
        seen=regex(r"Release file for (?P<url>\S+) is (?:not valid yet|expired)"),
        what="the archive {url} is refused for its date",
        why="the clock of this machine is wrong, or a mirror is stale",
        fix="set the clock; use another mirror if it is right",
    ),
    Pattern(
        code="DKMS_IN_IMAGE",
        seen=regex(
            r"^[^\n]*(?P<package>(?:amdgpu|rocm|rock)-dkms|linux-headers-\d\S*)[^\n]*"
            r"(?:error|fail|unable to locate|returned)"
        ),
        what="the image installs {package}, a kernel driver or its headers",
        why="a container uses the kernel of the host: the driver belongs there",
        fix="leave it out of the image (`amdgpu-install --no-dkms`, or user-space packages only)"
        " and install the driver on the host",
    ),
    Pattern(
        code="DKMS_IN_IMAGE",
        seen=regex(r"Your kernel headers for kernel (?P<kernel>\S+) cannot be found"),
        what="the image builds a kernel module for {kernel}, the kernel of the machine that builds",
        why="a container uses the kernel of the host: the driver belongs there",
        fix="leave the dkms package out of the image (`amdgpu-install --no-dkms`) and install the"
        " driver on the host",
    ),
    Pattern(
        code="PACKAGE_NOT_FOUND",
        seen=regex(
            r"(?:E: Unable to locate package (?P<package>\S+)|No match for argument: (?P<other>\S+)"
            r"|E: Version '(?P<version>[^']+)' for '(?P<named>[^']+)' was not found)"
        ),
        what="the package archives of the image do not have what it installs",
        why="a name was removed or renamed in this release of the distribution or of ROCm",
        fix="read the line with `Unable to locate package`, `No match for argument` or `was not"
        " found` above, and correct the name",
    ),
)
