"""Traffic that no link of a GPU reaches, in bytes per second and direction: values above it are not measurements.

PCIe 5.0 with 16 lanes carries 64 GB/s in each direction, PCIe 6.0 128 GB/s. NVLink carries 0.9 TB/s in each direction
on Blackwell (NVLink 5: 18 links, 1.8 TB/s in both) and 1.8 TB/s on Rubin (NVLink 6: 3.6 TB/s in both). So 1e12 is
enough for PCIe and too low for NVLink. The bound for PCIe is not higher than needed, because one blank value of DCGM
(140737488355328) must lift the mean of a window above it.
"""

from typing import Final

HIGHEST_PCIE: Final = 1e12
HIGHEST_NVLINK: Final = 1e13
