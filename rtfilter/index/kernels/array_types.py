"""The arrays that kernels take: a name for each dtype and number of axes. All are C-contiguous.

A type checker sees the dtype only.
"""

import numpy as np
from numpy.typing import NDArray

Float1 = NDArray[np.float64]  # float64, 1 axis
Float2 = NDArray[np.float64]  # float64, 2 axes
Float3 = NDArray[np.float64]  # float64, 3 axes
Int1 = NDArray[np.int64]  # int64, 1 axis
Int2 = NDArray[np.int64]  # int64, 2 axes
Int32_1 = NDArray[np.int32]  # int32, 1 axis
Int32_2 = NDArray[np.int32]  # int32, 2 axes
Int16_2 = NDArray[np.int16]  # int16, 2 axes
Word1 = NDArray[np.uint64]  # uint64, 1 axis: words of bits
Word2 = NDArray[np.uint64]  # uint64, 2 axes
Byte1 = NDArray[np.uint8]  # uint8, 1 axis
Bool1 = NDArray[np.bool_]  # bool, 1 axis
Slots = NDArray[np.void]  # records `layout.SLOT`, 1 axis
Links = NDArray[np.void]  # records `layout.LINK`, 1 axis
Nodes = NDArray[np.void]  # records `layout.NODE`, 1 axis
