// Package iam is what this project's programs are allowed to do at AWS, as a table: each
// action, on what, and on which condition. The policies that people attach to a role are
// written from it, and a test holds the calls of the code against it, in both
// directions.
//
// Some rights never show as a call: that a role is passed on to an instance, or a tag
// made with it. They are in the table too, marked so.
package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Statement allows actions. Values may have placeholders such as ${bucket}, which are
// those of Terraform's templatefile.
type Statement struct {
	Section   string // which policy it is of: one of Sections
	ID        string // letters and digits
	For       string // what needs it, in words
	Actions   []string
	Resources []string
	Condition Condition
	Silent    bool // AWS asks for it, but no call has its name
}

// Condition is operator, key, value, as IAM has them; all of it has to hold.
type Condition map[string]map[string]string

// Policy is a policy document.
type Policy struct {
	Version    string
	Statements []document `json:"Statement"`
}

type document struct {
	ID        string    `json:"Sid"`
	Effect    string    `json:"Effect"`
	Actions   []string  `json:"Action"`
	Resources []string  `json:"Resource"`
	Condition Condition `json:"Condition,omitempty"`
}

// Sections returns what there is a policy for, sorted.
func Sections() []string {
	sections := map[string]bool{SectionAgent: true} // which needs nothing
	for _, s := range Statements() {
		sections[s.Section] = true
	}
	return slices.Sorted(maps.Keys(sections))
}

// Document returns the policy of a section, with its placeholders.
func Document(section string) Policy {
	p := Policy{Version: "2012-10-17", Statements: []document{}}
	for _, s := range Statements() {
		if s.Section == section {
			p.Statements = append(p.Statements, document{s.ID, "Allow", s.Actions, s.Resources, s.Condition})
		}
	}
	return p
}

// JSON returns a value as people read it, with a newline at its end.
func JSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write policies: %w", err)
	}
	return append(text, '\n'), nil
}
