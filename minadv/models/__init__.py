"""Models: compositions of the cells and layers that meet the protocol of the search and the regularizers."""

from minadv.models.classifier import Batch, Classifier
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.models.pretraining import LMBatch, TextLM, pretrained
from minadv.models.text import TextBatch, TextClassifier
from minadv.protocol import Comparison, Likelihood, Model, ModelGrads, Site

__all__ = [
    "Batch",
    "Classifier",
    "Comparison",
    "LMBatch",
    "LanguageModel",
    "Likelihood",
    "Model",
    "ModelGrads",
    "Site",
    "TextBatch",
    "TextClassifier",
    "TextLM",
    "TokenBatch",
    "pretrained",
]
