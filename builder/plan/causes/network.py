"""Registries and the network: what is worth another try, and what is not."""

from __future__ import annotations

from builder.plan.causes.model import Pattern, Rule, regex

# What stands before a status of HTTP; addresses and sizes have numbers too.
STATUS = r"(?:HTTP(?:/[0-9.]+)?|\bstatus(?: code)?|returned error|server response)[ :=]{1,3}"
_LOGIN = "log in (`docker login REGISTRY`) before the run"
_LATER = "run the same command again"

RULES: tuple[Rule, ...] = (
    Pattern(
        code="RATE_LIMIT",
        seen=regex(
            r"(?:toomanyrequests|429 Too Many Requests|HTTP(?:/[0-9.]+)? 429\b|pull rate limit)"
            r"(?:[\s\S]{0,200}?retry-after\W{1,3}(?P<wait>\d+))?"
        ),
        what="the registry refuses more calls for now (429, too many requests)",
        why="without a login the quota is that of this address, shared with everybody behind it;"
        " the name that was asked for may well exist",
        fix=f"{_LOGIN}, or wait; a mirror of your site (`mirrors:`) has no such limit",
        retryable=True,
        wait=60,
    ),
    Pattern(
        code="PUSH_DENIED",
        seen=regex(
            r"denied: requested access to the resource is denied"
            r"|(?:failed to push|push access denied)[^\n]*(?:denied|403)"
            r"|insufficient_scope: authorization failed"
        ),
        unless=regex(r"pull access denied"),
        what="the registry did not allow this push",
        why="the account has no right to write there, or the repository does not exist",
        fix=f"{_LOGIN} with an account that may write to this repository, and check its name",
    ),
    Pattern(
        code="REGISTRY_DENIED",
        seen=regex(
            r"unauthorized: [^\n]*|pull access denied[^\n]*|authentication required"
            rf"|{STATUS}40[13]\b(?! Forbidden \[IP)"
        ),
        unless=regex(r"toomanyrequests|exporting to GitHub Actions Cache|blob\.core\.windows"),
        what="the registry wants a login, or the account has no right to this repository",
        fix=f"{_LOGIN}; check that the repository exists",
    ),
    Pattern(
        code="IMAGE_NOT_FOUND",
        seen=regex(
            r"manifest unknown|manifest for (?P<image>\S+) not found"
            r"|(?P<name>\S+): not found$|name unknown: [^\n]*"
        ),
        beside=regex(r"manifest|failed to resolve|pull|name unknown"),
        what="the registry has no image of that name",
        why="only some combinations of ROCm, distribution, Python and torch are published",
        fix="take an existing tag: `rocm-torch matrix` lists the combinations that exist",
    ),
    Pattern(
        code="BLOB_TOO_LARGE",
        seen=regex(r"413 (?:Request Entity|Payload|Content) Too Large|HTTP(?:/[0-9.]+)? 413\b"),
        what="the registry, or a proxy before it, refuses an upload of this size (413)",
        fix="split the layer into smaller ones, or raise the limit of the registry's proxy",
    ),
    Pattern(
        code="BLOB_SESSION_EXPIRED",
        seen=regex(
            r"(?:^(?P<layer>[\w:]+): Retrying in [^\n]*[\s\S]*?)?(?:blob upload unknown"
            r"|BLOB_UPLOAD_UNKNOWN)"
        ),
        what="the upload session of layer {layer} expired before the large layer was complete",
        why="the registry, its storage or a proxy lets an upload live too short a time",
        fix="split the layer into smaller ones (ROCm, torch, the rest), or raise that limit",
    ),
    Pattern(
        code="NAME_NOT_RESOLVED",
        seen=regex(
            r"Temporary failure (?:in name resolution|resolving)"
            r"|Could not resolve|dial tcp: lookup [\w.-]+|Name or service not known"
        ),
        what="a name could not be resolved: the network or its name server is away",
        fix="check the network and its name server; a site without the internet names its mirrors"
        " (`mirrors:`, `packages:`, `indexes:`)",
        retryable=True,
        wait=30,
    ),
    Pattern(
        code="TLS_NOT_TRUSTED",
        seen=regex(
            r"x509: certificate signed by unknown authority|CERTIFICATE_VERIFY_FAILED"
            r"|certificate verification failed|SSL certificate problem[^\n]*"
        ),
        what="a certificate is not trusted",
        why="a proxy of your site signs with its own authority, which the image or engine lacks",
        fix="give the authority of your site to the engine and the build, or use a mirror",
    ),
    Pattern(
        code="REGISTRY_FAILED",
        seen=regex(
            rf"{STATUS}50[0234]\b|unexpected status from [^\n]{{0,300}}\b50[0234]\b"
            r"|\b50[0234] (?:Internal Server Error|Bad Gateway|Service Unavailable"
            r"|Gateway Time-?out)"
        ),
        what="a server on the other side failed",
        why="the fault is not in the image: what was built is kept",
        fix=f"{_LATER}; only what is missing is done",
        retryable=True,
        wait=30,
    ),
    Pattern(
        code="CONNECTION_LOST",
        seen=regex(
            r"connection reset by peer|unexpected EOF|: EOF$|broken pipe|TLS handshake timeout"
            r"|i/o timeout|ConnectionResetError|Connection timed out|Read timed out|IncompleteRead"
            r"|context deadline exceeded|Max retries exceeded|Retry\(total=0"
            r"|curl: \((?:7|18|28|35|52|55|56|92)\)|connection refused|Could not connect to"
        ),
        what="a connection was lost or not answered",
        fix=f"{_LATER}; check proxy settings and mirrors where it stays",
        retryable=True,
        wait=10,
    ),
)
