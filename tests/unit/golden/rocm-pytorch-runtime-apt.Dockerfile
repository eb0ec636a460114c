# Generated for rocm6.2.4-torch2.7.1-py311-ubuntu22.04 from templates/rocm-pytorch.Dockerfile.j2.
# Do not edit: change the template and run `rocm-torch render`.
FROM docker.io/rocm/pytorch:rocm6.2.4_ubuntu22.04_py3.10_pytorch_2.5.1
ARG SOURCE_DATE_EPOCH
USER 0
RUN --mount=type=bind,from=rootfs,target=/mnt \
    set -eu; \
    umask 022; \
    python="$(/mnt/usr/lib/rocm-torch/find-python)"; \
    /mnt/usr/lib/rocm-torch/wrap-python "$python"
ENV PATH="/opt/rocm-torch/bin:$PATH"
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
  io.rocm-torch.family="rocm-pytorch" \
  io.rocm-torch.flavour="runtime" \
  io.rocm-torch.gfx="gfx90a,gfx942" \
  io.rocm-torch.lane="legacy" \
  io.rocm-torch.python="3.11" \
  io.rocm-torch.rocm="6.2.4" \
  io.rocm-torch.torch="2.7.1" \
  org.opencontainers.image.base.name="docker.io/rocm/pytorch:rocm6.2.4_ubuntu22.04_py3.10_pytorch_2.5.1" \
  org.opencontainers.image.description="PyTorch 2.7.1 for ROCm 6.2.4 with Python 3.11 on ubuntu22.04" \
  org.opencontainers.image.title="ourorg/rocm-torch rocm6.2.4-torch2.7.1-py311-ubuntu22.04"
USER 1000
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
CMD ["bash"]
