"""A product's dense peak beside what was measured; the peaks are facts in the cell file."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

UNKNOWN = "peak unknown"


def peak_of(
    peaks: Mapping[str, Mapping[str, float]], products: Sequence[str], dtype: str
) -> float | None:
    """Return the dense peak in TFLOP/s of the first product that is known, or None.

    Args:
        peaks: TFLOP/s by dtype, by name of the product or PCI id.
        products: names and ids of this device, the most exact first.
        dtype: as in the rows of ``gemm``.
    """
    for product in products:
        found = peaks.get(product, {}).get(dtype)
        if found:
            return float(found)
    return None


def beside_peak(
    row: Mapping[str, Any], peaks: Mapping[str, Mapping[str, float]], products: Sequence[str]
) -> dict[str, Any]:
    """Return a row of ``gemm`` with the peak, the part of it that was reached, and the words."""
    peak = peak_of(peaks, products, row["dtype"])
    reached = row["tflops"] / peak if peak and row["tflops"] else None
    told = UNKNOWN if peak is None else f"{reached or 0:.0%} of the {row['dtype']} peak {peak:g}"
    return {**row, "peak_tflops": peak, "fraction_of_peak": reached, "peak_told": told}
