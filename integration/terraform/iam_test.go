//go:build integration

package terraform_test

import (
	"encoding/json"
	"fmt"
)

// statement is a statement of an IAM policy:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html.
type statement struct {
	Sid              string
	Effect           string
	Principal        json.RawMessage
	Action, Resource many
	Condition        json.RawMessage
}

// many is a string or a list of strings.
type many []string

// UnmarshalJSON reads either.
func (m *many) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*m = many{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(m))
}

func statements(policy string) ([]statement, error) {
	var document struct{ Statement []statement }
	if err := json.Unmarshal([]byte(policy), &document); err != nil {
		return nil, fmt.Errorf("the policy %q: %w", policy, err)
	}
	return document.Statement, nil
}
