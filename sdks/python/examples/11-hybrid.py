"""What this machine should not answer may go to a target, when a person says yes.

python 11-hybrid.py MODEL TARGET STATE          such as http://127.0.0.1:8081/v1#name
"""

import sys

import cactus


def ask(question: cactus.Question) -> bool:
    return input(f"May {question.classes} leave for {question.host}, for at most {question.most}? [y/N] ") == "y"


with cactus.Model.load(sys.argv[1]) as model:
    # `always` is for the example; `auto` hands over what is doubtful.
    policy = cactus.Policy(sys.argv[2], handoff="always", budget=0.05, ask=ask, state=sys.argv[3])
    model.set_policy(policy)
    answer = model.chat("Why is the sky blue?", max_tokens=20)
    print(answer)
    print(answer.decision["answered_by"], answer.decision["reason"], answer.decision["cost_usd"])
