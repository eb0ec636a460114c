# Generated for cpu-torch2.6.0-py313-debian13-opencl from templates/distro.Dockerfile.j2.
# Do not edit: change the template and run `rocm-torch render`.
FROM docker.io/library/debian:13
ARG SOURCE_DATE_EPOCH
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources,mode=0444 \
    set -eu; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends \
      clinfo \
      python3-torch \
      rocm-opencl-icd \
      rocminfo; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old \
      /var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old /var/log/*
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
ENV LANG="C.UTF-8"
LABEL \
  io.rocm-torch.cell="cpu-torch2.6.0-py313-debian13-opencl" \
  io.rocm-torch.distro="debian13" \
  io.rocm-torch.family="distro" \
  io.rocm-torch.flavour="opencl" \
  io.rocm-torch.lane="cpu" \
  io.rocm-torch.python="3.13" \
  io.rocm-torch.torch="2.6.0" \
  org.opencontainers.image.base.name="docker.io/library/debian:13" \
  org.opencontainers.image.description="PyTorch 2.6.0 for CPU with Python 3.13 on debian13" \
  org.opencontainers.image.title="ourorg/rocm-torch cpu-torch2.6.0-py313-debian13-opencl"
USER 1000
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
CMD ["bash"]
