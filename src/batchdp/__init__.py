"""Answer a whole batch of counting queries under differential privacy, with as little noise as possible.

Names are imported when they are first used: `import batchdp` itself takes milliseconds. The list of them is the stub
beside this file, which type checkers read too.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.3.0"
