"""The reference trainer behind `gear train`: one learner loop, SAC and Double DQN, Hydra.

Enter through `gear.train.app.main`. Needs the extra `gear-replay[train]`.
"""
