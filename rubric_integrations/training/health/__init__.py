"""Whether a policy learns what the rubric is for, or how to deceive its judge: `reward_report`."""
