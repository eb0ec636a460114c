# Generated for rocm6.2.4-torch2.7.1-py311-ubi9-devel from templates/amd-wheel.Dockerfile.j2.
# Do not edit: change the template and run `rocm-torch render`.
FROM registry.access.redhat.com/ubi9/ubi-minimal:9.6 AS repository-keys
ARG SOURCE_DATE_EPOCH
# hadolint ignore=DL3002
USER 0
RUN set -eu; \
    command -v curl || microdnf -y install curl; \
    command -v gpg || microdnf -y install gnupg2; \
    microdnf clean all
RUN --mount=type=bind,from=rootfs,target=/mnt \
    --mount=type=secret,id=key-amd-rocm,target=/run/lent-key,mode=0444 \
    /mnt/usr/lib/rocm-torch/fetch-key https://repo.radeon.com/rocm/rocm.gpg.key \
      CA8BB4727A47B4D09B4EE8969386B48A1A693C5C /keys/amd-rocm.asc /run/lent-key
FROM registry.access.redhat.com/ubi9/ubi-minimal:9.6
ARG SOURCE_DATE_EPOCH
RUN \
    set -eu; \
    microdnf -y --setopt=install_weak_deps=0 --setopt=tsflags=nodocs install \
      ca-certificates \
      gawk \
      python3.11 \
      shadow-utils; \
    microdnf clean all; \
    rm -rf /var/cache/dnf /var/cache/yum /var/cache/libdnf5 /var/cache/ldconfig/aux-cache \
      /var/lib/dnf/history.sqlite* /var/lib/dnf/repos /var/lib/rpm/__db* /var/log/*
RUN --mount=type=bind,from=repository-keys,source=/keys,target=/mnt \
    set -eu; \
    umask 022; \
    mkdir -p /etc/pki/rpm-gpg; \
    cp /mnt/amd-rocm.asc /etc/pki/rpm-gpg/amd-rocm.asc; \
    printf '%s\n' \
      '[amd-rocm]' \
      'name=amd-rocm' \
      'baseurl=https://repo.radeon.com/rocm/el9/6.2.4/main' \
      'enabled=1' \
      'priority=50' \
      'gpgcheck=1' \
      'gpgkey=file:///etc/pki/rpm-gpg/amd-rocm.asc' \
      > /etc/yum.repos.d/amd-rocm.repo
RUN \
    --mount=type=secret,id=repository-amd-rocm,target=/etc/yum.repos.d/amd-rocm.repo,mode=0444 \
    set -eu; \
    microdnf -y --setopt=install_weak_deps=0 --setopt=tsflags=nodocs install \
      hipcc \
      hipify-clang \
      rocprofiler; \
    microdnf clean all; \
    rm -rf /var/cache/dnf /var/cache/yum /var/cache/libdnf5 /var/cache/ldconfig/aux-cache \
      /var/lib/dnf/history.sqlite* /var/lib/dnf/repos /var/lib/rpm/__db* /var/log/*
RUN --mount=type=bind,from=tools,target=/mnt \
    --mount=type=bind,from=wheels,target=/media \
    set -eu; \
    umask 022; \
    export UV_PYTHON_INSTALL_DIR=/opt/python UV_PYTHON_PREFERENCE=only-system \
      UV_PYTHON_DOWNLOADS=never UV_OFFLINE=1 UV_NO_CACHE=1 UV_NO_CONFIG=1 UV_LINK_MODE=copy; \
    /mnt/uv venv --python python3.11 /opt/venv; \
    /mnt/uv pip sync --python /opt/venv/bin/python --require-hashes --no-index \
      --find-links /media /media/requirements.txt; \
    rm -f /opt/venv/.lock /opt/venv/.gitignore /opt/venv/CACHEDIR.TAG \
      /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json; \
    sed -i '/uv_cache\.json,/d' /opt/venv/lib/python*/site-packages/*.dist-info/RECORD; \
    PYTHONHASHSEED=0 /opt/venv/bin/python -m compileall -qq -j 1 \
      --invalidation-mode checked-hash /opt/venv/lib || :
ENV PATH="/opt/venv/bin:$PATH"
RUN set -eu; \
    umask 022; \
    rocm-sdk init; \
    root="$(rocm-sdk path --root)"; \
    ln -s "$root" /opt/rocm
ENV PATH="/opt/rocm/bin:$PATH"
RUN --mount=type=bind,from=rootfs,target=/mnt \
    --mount=type=bind,from=selftest,target=/media \
    --mount=type=bind,target=/srv \
    set -eu; \
    umask 022; \
    cp -r /mnt/. /; \
    mkdir -p /usr/lib/rocm-torch/rocm_torch_selftest /usr/share/rocm-torch; \
    cp -r /media/. /usr/lib/rocm-torch/rocm_torch_selftest; \
    cp /srv/cell.json /usr/share/rocm-torch/cell.json; \
    /usr/lib/rocm-torch/setup-user rocm 1000; \
    python /usr/lib/rocm-torch/hook-python; \
    python /usr/lib/rocm-torch/record-torch
ENV PYTORCH_ROCM_ARCH="gfx90a;gfx942" \
    GPU_ARCHS="gfx90a;gfx942" \
    GPU_TARGETS="gfx90a;gfx942" \
    HIP_ARCHITECTURES="gfx90a;gfx942"
ENV LANG="C.UTF-8"
LABEL \
  io.rocm-torch.cell="rocm6.2.4-torch2.7.1-py311-ubi9-devel" \
  io.rocm-torch.distro="ubi9" \
  io.rocm-torch.family="amd-wheel" \
  io.rocm-torch.flavour="devel" \
  io.rocm-torch.gfx="gfx90a,gfx942" \
  io.rocm-torch.lane="legacy" \
  io.rocm-torch.python="3.11" \
  io.rocm-torch.rocm="6.2.4" \
  io.rocm-torch.torch="2.7.1" \
  org.opencontainers.image.base.name="registry.access.redhat.com/ubi9/ubi-minimal:9.6" \
  org.opencontainers.image.description="PyTorch 2.7.1 for ROCm 6.2.4 with Python 3.11 on ubi9" \
  org.opencontainers.image.title="ourorg/rocm-torch rocm6.2.4-torch2.7.1-py311-ubi9-devel"
USER 1000
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
CMD ["bash"]
