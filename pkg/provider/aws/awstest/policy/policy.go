// Package policy evaluates IAM's identity policies as AWS's page «Policy evaluation logic»
// describes: a request is denied unless a statement allows it, and a Deny overrides every Allow. It
// supports the parts of the language that this project's policies use, and refuses policies with
// others, so that no test passes because a part was ignored.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
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

// oneOrMore is a string, or a list of strings.
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

// Request is a request to be authorized.
type Request struct {
	Action   string            // ec2:RunInstances
	Resource string            // an ARN; *: the action has no specific resource
	Context  map[string]string // values of the condition keys that AWS knows for this action and resource
}

// Parse parses a policy document. The error names what this package does not support.
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

// Without returns the policy without the statement with this id.
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
		if !slices.Contains([]string{"Bool", "Null", "StringEquals", "StringLike"}, operator) {
			return fmt.Errorf("condition %.80q: want Bool, Null, StringEquals or StringLike", operator)
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

// Allowed reports whether the policies of one identity together allow a request.
func Allowed(policies []Policy, r Request) bool {
	allowed := false
	for _, p := range policies {
		for _, s := range p.statements {
			if !s.applies(r) {
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

// applies reports whether a statement matches a request. Names of actions are case-insensitive, and
// only * matches a request without a resource.
func (s statement) applies(r Request) bool {
	action := func(pattern string) bool { return matches(strings.ToLower(pattern), strings.ToLower(r.Action)) }
	resource := func(pattern string) bool { return pattern == "*" || r.Resource != "*" && matches(pattern, r.Resource) }
	return slices.ContainsFunc(s.Actions, action) && slices.ContainsFunc(s.Resources, resource) && s.conditionsHold(r.Context)
}

// conditionsHold reports whether all conditions hold: for each key, one of its values matches. A
// key that is missing in the context matches nothing; Null tests whether it is missing.
func (s statement) conditionsHold(context map[string]string) bool {
	for operator, keys := range s.Condition {
		for key, values := range keys {
			got, ok := context[key]
			if operator == "Null" {
				got, ok = strconv.FormatBool(!ok), true
			}
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
	case "Bool", "Null":
		return strings.EqualFold(want, got)
	default:
		return want == got
	}
}

// matches reports whether text matches pattern: * stands for any characters, ? for one.
func matches(pattern, text string) bool {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	return regexp.MustCompile(`(?s)^` + wildcards.Replace(regexp.QuoteMeta(pattern)) + `$`).MatchString(text)
}
