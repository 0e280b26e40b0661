"""The reference trainer behind `gear train`: one learner loop for every algorithm, Hydra.

Enter through `gear.train.app.main`. Needs the extra `gear-replay[train]`.
"""
