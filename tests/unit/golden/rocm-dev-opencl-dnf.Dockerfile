# Generated for rocm6.2.4-torch2.7.1-py311-almalinux9-opencl from templates/rocm-dev.Dockerfile.j2.
# Do not edit: change the template and run `rocm-torch render`.
FROM docker.io/rocm/dev-almalinux-8:6.2.4-complete
ARG SOURCE_DATE_EPOCH
USER 0
RUN \
    set -eu; \
    dnf -y --setopt=install_weak_deps=False --setopt=tsflags=nodocs install \
      ca-certificates \
      gawk \
      python3.11 \
      shadow-utils; \
    dnf clean all; \
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
  io.rocm-torch.cell="rocm6.2.4-torch2.7.1-py311-almalinux9-opencl" \
  io.rocm-torch.distro="almalinux9" \
  io.rocm-torch.family="rocm-dev" \
  io.rocm-torch.flavour="opencl" \
  io.rocm-torch.gfx="gfx90a,gfx942" \
  io.rocm-torch.lane="legacy" \
  io.rocm-torch.python="3.11" \
  io.rocm-torch.rocm="6.2.4" \
  io.rocm-torch.torch="2.7.1" \
  org.opencontainers.image.base.name="docker.io/rocm/dev-almalinux-8:6.2.4-complete" \
  org.opencontainers.image.description="PyTorch 2.7.1 for ROCm 6.2.4 with Python 3.11 on almalinux9" \
  org.opencontainers.image.title="ourorg/rocm-torch rocm6.2.4-torch2.7.1-py311-almalinux9-opencl"
USER 1000
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
CMD ["bash"]
