"""Classify images with an exported model and onnxruntime alone: no mgcap, no torch.

python examples/predict_onnx.py ucmerced.onnx tile.jpg ...
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
notes = session.get_modelmeta().custom_metadata_map
classes = json.loads(notes["classes"])
side = json.loads(notes["preprocessing"])["side"]
for path in sys.argv[2:]:
    image = Image.open(path).convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255
    (probabilities,) = session.run(None, {"images": pixels})[0]
    best = int(probabilities.argmax())
    print(f"{path},{classes[best]},{probabilities[best]:.4f}")
