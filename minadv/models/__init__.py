"""Models: compositions of the cells and layers that meet the protocol of the search and the regularizers."""

from minadv.models.classifier import Batch, Classifier
from minadv.models.protocol import Comparison, Likelihood, Model, ModelGrads, Site

__all__ = ["Batch", "Classifier", "Comparison", "Likelihood", "Model", "ModelGrads", "Site"]
