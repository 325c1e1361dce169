package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// advisories is the page for private vulnerability reports.
const advisories = "https://github.com/nstance/nstance/security/advisories/new"

// form is an issue form as GitHub reads it. An unknown field invalidates the form.
type form struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Labels      []string `json:"labels"`
	Body        []struct {
		Type       string `json:"type"`
		ID         string `json:"id"`
		Attributes struct {
			Label       string   `json:"label"`
			Description string   `json:"description"`
			Value       string   `json:"value"`
			Options     []string `json:"options"`
			Render      string   `json:"render"`
		} `json:"attributes"`
		Validations struct {
			Required bool `json:"required"`
		} `json:"validations"`
	} `json:"body"`
}

// TestForms: GitHub does not show an invalid form.
func TestForms(t *testing.T) {
	for name, fields := range map[string][]string{
		"bug.yaml":     {"version", "provider", "happened", "steps", "admin", "log"},
		"feature.yaml": {"problem", "today", "proposal"},
	} {
		var f form
		if err := yaml.UnmarshalStrict([]byte(text(t, ".github", "ISSUE_TEMPLATE", name)), &f); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Name == "" || f.Description == "" {
			t.Errorf("%s: name is %q and description %q, want both", name, f.Name, f.Description)
		}
		var ids []string
		for _, b := range f.Body {
			switch b.Type {
			case "markdown":
				if b.Attributes.Value == "" {
					t.Errorf("%s: a markdown without a value", name)
				}
				continue
			case "dropdown":
				if len(b.Attributes.Options) < 2 {
					t.Errorf("%s: %s has the options %q, want a choice", name, b.ID, b.Attributes.Options)
				}
			case "input", "textarea":
			default:
				t.Errorf("%s: %s has type %q, want markdown, input, textarea or dropdown", name, b.ID, b.Type)
			}
			if b.Attributes.Label == "" {
				t.Errorf("%s: %s has no label", name, b.ID)
			}
			ids = append(ids, b.ID)
		}
		if !slices.Equal(ids, fields) {
			t.Errorf("%s asks for %q, want %q", name, ids, fields)
		}
	}
}

// TestVulnerabilitiesAreReportedInPrivate: the forms for issues and pull requests link to the page
// for it.
func TestVulnerabilitiesAreReportedInPrivate(t *testing.T) {
	for _, name := range []string{"ISSUE_TEMPLATE/config.yml", "ISSUE_TEMPLATE/bug.yaml", "pull_request_template.md"} {
		if !strings.Contains(text(t, ".github", filepath.FromSlash(name)), advisories) {
			t.Errorf(".github/%s does not lead to %s", name, advisories)
		}
	}
	var chooser struct {
		BlankIssuesEnabled bool `json:"blank_issues_enabled"`
		ContactLinks       []struct {
			Name  string `json:"name"`
			URL   string `json:"url"`
			About string `json:"about"`
		} `json:"contact_links"`
	}
	if err := yaml.UnmarshalStrict([]byte(text(t, ".github", "ISSUE_TEMPLATE", "config.yml")), &chooser); err != nil {
		t.Error(err)
	}
	for _, l := range chooser.ContactLinks {
		if l.Name == "" || l.URL == "" || l.About == "" {
			t.Errorf("config.yml: %+v: want name, url and about", l)
		}
	}
}

// TestOwners: paths with an owner exist, and the owner is a team of the organisation.
func TestOwners(t *testing.T) {
	line := regexp.MustCompile(`^(\S+)((?: @nstance/[a-z-]+)+)$`)
	for l := range strings.Lines(text(t, ".github", "CODEOWNERS")) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			t.Errorf("CODEOWNERS: %q: want a path and teams, as in /images/ @nstance/maintainers", l)
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil || len(found) == 0 {
			t.Errorf("CODEOWNERS: there is no %s", m[1])
		}
	}
}
