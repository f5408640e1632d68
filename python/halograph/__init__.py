"""Train graph neural networks on CPUs: full-graph or mini-batch, in one process or on several ranks.

Example:
    >>> import halograph
    >>> data = halograph.Dataset.make("demo")
    >>> run = halograph.train(data, model="gcn", hidden=64, epochs=20, progress=False)
    >>> run.predict().shape
    (4000, 8)
"""

from ._classifier import NodeClassifier
from ._dataset import Dataset
from ._errors import Diverged, HalographError, HalographWarning, InputError, OutOfMemory, PeerLost
from ._events import Epoch, Evaluation, Event
from ._halograph import __version__
from ._run import History, Report, Run, Scores, load
from ._train import train

__all__ = [
    "Dataset",
    "Diverged",
    "Epoch",
    "Evaluation",
    "Event",
    "HalographError",
    "HalographWarning",
    "History",
    "InputError",
    "NodeClassifier",
    "OutOfMemory",
    "PeerLost",
    "Report",
    "Run",
    "Scores",
    "__version__",
    "load",
    "train",
]
