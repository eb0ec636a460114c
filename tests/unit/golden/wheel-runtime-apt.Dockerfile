# Generated for rocm6.2.4-torch2.7.1-py311-ubuntu22.04 from templates/wheel.Dockerfile.j2.
# Do not edit: change the template and run `rocm-torch render`.
FROM docker.io/library/ubuntu:22.04
ARG SOURCE_DATE_EPOCH
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list,mode=0444 \
    set -eu; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends \
      ca-certificates \
      g++; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old \
      /var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old /var/log/*
RUN --mount=type=bind,from=tools,target=/mnt \
    --mount=type=secret,id=python-mirror,target=/run/python-mirror,mode=0444 \
    set -eu; \
    umask 022; \
    export UV_PYTHON_INSTALL_DIR=/opt/python UV_NO_CACHE=1 UV_NO_CONFIG=1; \
    if [ -s /run/python-mirror ]; then \
      UV_PYTHON_INSTALL_MIRROR="$(cat /run/python-mirror)"; \
      export UV_PYTHON_INSTALL_MIRROR; \
    fi; \
    /mnt/uv python install --no-bin 3.11; \
    rm -rf /opt/python/.[!.]*; \
    chmod -R a+rX /opt/python
RUN --mount=type=bind,from=tools,target=/mnt \
    --mount=type=bind,from=wheels,target=/media \
    set -eu; \
    umask 022; \
    export UV_PYTHON_INSTALL_DIR=/opt/python UV_PYTHON_PREFERENCE=only-managed \
      UV_PYTHON_DOWNLOADS=never UV_OFFLINE=1 UV_NO_CACHE=1 UV_NO_CONFIG=1 UV_LINK_MODE=copy; \
    /mnt/uv venv --python 3.11 /opt/venv; \
    /mnt/uv pip sync --python /opt/venv/bin/python --require-hashes --no-index \
      --find-links /media /media/requirements.txt; \
    rm -f /opt/venv/.lock /opt/venv/.gitignore /opt/venv/CACHEDIR.TAG \
      /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json; \
    sed -i '/uv_cache\.json,/d' /opt/venv/lib/python*/site-packages/*.dist-info/RECORD; \
    PYTHONHASHSEED=0 /opt/venv/bin/python -m compileall -qq -j 1 \
      --invalidation-mode checked-hash /opt/venv/lib || :
ENV PATH="/opt/venv/bin:$PATH"
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
  io.rocm-torch.cell="rocm6.2.4-torch2.7.1-py311-ubuntu22.04" \
  io.rocm-torch.distro="ubuntu22.04" \
  io.rocm-torch.family="wheel" \
  io.rocm-torch.flavour="runtime" \
  io.rocm-torch.gfx="gfx90a,gfx942" \
  io.rocm-torch.lane="legacy" \
  io.rocm-torch.python="3.11" \
  io.rocm-torch.rocm="6.2.4" \
  io.rocm-torch.torch="2.7.1" \
  org.opencontainers.image.base.name="docker.io/library/ubuntu:22.04" \
  org.opencontainers.image.description="PyTorch 2.7.1 for ROCm 6.2.4 with Python 3.11 on ubuntu22.04" \
  org.opencontainers.image.title="ourorg/rocm-torch rocm6.2.4-torch2.7.1-py311-ubuntu22.04"
USER 1000
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
CMD ["bash"]
