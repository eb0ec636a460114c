# A login shell sets PATH anew on Debian and Ubuntu and would lose the Python that has torch.
# shellcheck shell=sh
for rocm_torch_folder in /opt/rocm/bin /opt/venv/bin /opt/rocm-torch/bin; do
    case ":$PATH:" in
        *":$rocm_torch_folder:"*) ;;
        *) [ ! -d "$rocm_torch_folder" ] || PATH=$rocm_torch_folder:$PATH ;;
    esac
done
unset rocm_torch_folder
