// Package policy decides what IAM's identity policies allow, by the rules of AWS's page
// «Policy evaluation logic»: what nothing allows is denied, and what something denies is
// denied whatever else allows it. It knows the parts of the language that the policies of
// this project have, and refuses to read a policy with another part, so that no test
// passes by what was left out.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Policy is a policy document.
type Policy struct{ statements []statement }

type statement struct {
	ID        string                          `json:"Sid"`
	Effect    string                          `json:"Effect"`
	Actions   oneOrMore                       `json:"Action"`
	Resources oneOrMore                       `json:"Resource"`
	Condition map[string]map[string]oneOrMore `json:"Condition"`
}

// oneOrMore is a text, or a list of some.
type oneOrMore []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMore) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(o))
}

// Request is what somebody is about to do.
type Request struct {
	Action   string            // ec2:RunInstances
	Resource string            // an ARN; *: the action is of no one thing
	Context  map[string]string // by condition key, of what AWS knows for this action and resource
}

// Parse reads a policy document. The error says what of it this package does not know.
func Parse(text []byte) (Policy, error) {
	var document struct {
		Version    string      `json:"Version"`
		Statements []statement `json:"Statement"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&document); err != nil {
		return Policy{}, fmt.Errorf("read policy: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Policy{}, errors.New("read policy: something follows the document")
	}
	if document.Version != "2012-10-17" {
		return Policy{}, fmt.Errorf("read policy: version %.40q: want 2012-10-17", document.Version)
	}
	for n, s := range document.Statements {
		if err := s.check(); err != nil {
			return Policy{}, fmt.Errorf("read policy: statement %d (%.80q): %w", n+1, s.ID, err)
		}
	}
	return Policy{document.Statements}, nil
}

// Without returns the policy without the statement of an id.
func (p Policy) Without(id string) Policy {
	return Policy{slices.DeleteFunc(slices.Clone(p.statements), func(s statement) bool { return s.ID == id })}
}

func (s statement) check() error {
	switch {
	case s.Effect != "Allow" && s.Effect != "Deny":
		return fmt.Errorf("effect %.40q: want Allow or Deny", s.Effect)
	case len(s.Actions) == 0 || len(s.Resources) == 0:
		return errors.New("want an action and a resource at least")
	}
	for _, action := range s.Actions {
		if service, _, ok := strings.Cut(action, ":"); action != "*" && (!ok || service == "") {
			return fmt.Errorf("action %.80q: want service:Action", action)
		}
	}
	texts := slices.Concat(s.Actions, s.Resources)
	for operator, keys := range s.Condition {
		if !slices.Contains([]string{"Bool", "StringEquals", "StringLike"}, operator) {
			return fmt.Errorf("condition %.80q: want Bool, StringEquals or StringLike", operator)
		}
		for _, values := range keys {
			texts = append(texts, values...)
		}
	}
	if n := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, "${") }); n >= 0 {
		return fmt.Errorf("%.200q has a variable", texts[n])
	}
	return nil
}

// Allowed reports whether some policies of one identity together allow a request.
func Allowed(policies []Policy, r Request) bool {
	allowed := false
	for _, p := range policies {
		for _, s := range p.statements {
			if !s.isAbout(r) {
				continue
			}
			if s.Effect == "Deny" {
				return false
			}
			allowed = true
		}
	}
	return allowed
}

// isAbout reports whether a statement is about a request: names of actions are in any
// case, and a resource of none is covered by * alone.
func (s statement) isAbout(r Request) bool {
	action := func(pattern string) bool { return matches(strings.ToLower(pattern), strings.ToLower(r.Action)) }
	resource := func(pattern string) bool { return pattern == "*" || r.Resource != "*" && matches(pattern, r.Resource) }
	return slices.ContainsFunc(s.Actions, action) && slices.ContainsFunc(s.Resources, resource) && s.holds(r.Context)
}

// holds reports whether all conditions do: one of the values of each key. A key that the
// context lacks is equal to nothing.
func (s statement) holds(context map[string]string) bool {
	for operator, keys := range s.Condition {
		for key, values := range keys {
			got, ok := context[key]
			if !ok || !slices.ContainsFunc(values, func(want string) bool { return compare(operator, want, got) }) {
				return false
			}
		}
	}
	return true
}

func compare(operator, want, got string) bool {
	switch operator {
	case "StringLike":
		return matches(want, got)
	case "Bool":
		return strings.EqualFold(want, got)
	default:
		return want == got
	}
}

// matches reports whether a text is of a pattern: * is any characters, ? is one.
func matches(pattern, text string) bool {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	return regexp.MustCompile(`(?s)^` + wildcards.Replace(regexp.QuoteMeta(pattern)) + `$`).MatchString(text)
}
