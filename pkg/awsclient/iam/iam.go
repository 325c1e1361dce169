// Package iam defines what this project's programs may do at AWS, as a table of actions,
// resources and conditions. The published IAM policies are generated from it, and a test checks
// it against the calls in the code, in both directions.
//
// Some rights never appear as a call, such as passing a role to an instance or creating tags
// with it. The table marks them as Silent.
package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Statement allows actions. Values may have placeholders such as ${bucket}, in the syntax of
// Terraform's templatefile.
type Statement struct {
	Section   string // the policy it belongs to: one of Sections
	ID        string // letters and digits
	For       string // what needs it
	Actions   []string
	Resources []string
	Condition Condition
	Silent    bool // required by AWS, but no call has its name
}

// Condition maps operator to key to value, as in IAM; all must hold.
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

// Sections returns the names of the policies, sorted.
func Sections() []string {
	sections := map[string]bool{SectionAgent: true} // needs no rights
	for _, s := range Statements() {
		sections[s.Section] = true
	}
	return slices.Sorted(maps.Keys(sections))
}

// Document returns the policy of a section, with placeholders.
func Document(section string) Policy {
	p := Policy{Version: "2012-10-17", Statements: []document{}}
	for _, s := range Statements() {
		if s.Section == section {
			p.Statements = append(p.Statements, document{s.ID, "Allow", s.Actions, s.Resources, s.Condition})
		}
	}
	return p
}

// JSON returns a value as indented JSON with a trailing newline.
func JSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write policies: %w", err)
	}
	return append(text, '\n'), nil
}
