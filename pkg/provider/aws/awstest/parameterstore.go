package awstest

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// This file implements Systems Manager Parameter Store.

// maxParameter is the maximum length of a standard parameter's value, in bytes.
const maxParameter = 4 << 10

// parameter is a parameter and its versions.
type parameter struct {
	name, arn string
	kind      string // String or SecureString
	versions  []version
}

// Parameters is the Parameter Store of a Cloud. It is safe for concurrent use.
type Parameters struct {
	cloud *Cloud
	all   []*parameter
}

func onParameters(do func(*Parameters, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Parameters, p) }
}

func parameterActions() map[string]action {
	return map[string]action{
		"GetParameter": {parameterSet([]string{"Name", "WithDecryption" + isFlag}), onParameters((*Parameters).getParameter)},
		"PutParameter": {
			parameterSet([]string{"Name", "Value", "Type", "Overwrite" + isFlag, "Tier", "KeyId", "Description", "DataType"}),
			onParameters((*Parameters).putParameter),
		},
	}
}

// Put stores an encrypted string, as the console does. It reports whether the parameter is valid.
func (s *Parameters) Put(name, text string) bool {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	_, err := s.putParameter(&params{values: map[string]string{
		"Name": name, "Value": text, "Type": "SecureString", "Overwrite" + isFlag: "true",
	}})
	return err == nil
}

// Kind returns a parameter's type, String or SecureString; empty: there is none with this name.
func (s *Parameters) Kind(name string) string {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	if found := s.find(name); found != nil {
		return found.kind
	}
	return ""
}

var (
	parameterName = regexp.MustCompile(`^(/[A-Za-z0-9_.-]+){1,15}$|^[A-Za-z0-9_.-]+$`)
	parameterARN  = regexp.MustCompile(`^arn:aws:ssm:[a-z0-9-]+:\d{12}:parameter/(.+)$`)
)

// find finds a parameter by its name or ARN; nil: there is none.
func (s *Parameters) find(id string) *parameter {
	for _, p := range s.all {
		if p.name == id || p.arn == id {
			return p
		}
	}
	return nil
}

func (s *Parameters) arn(name string) string {
	return "arn:aws:ssm:" + s.cloud.cfg.Region + ":" + s.cloud.cfg.Account + ":parameter/" + strings.TrimPrefix(name, "/")
}

// getParameter returns a parameter, possibly stale.
func (s *Parameters) getParameter(p *params) (any, error) {
	name := p.get("Name")
	if !parameterName.MatchString(name) && !parameterARN.MatchString(name) {
		return nil, bad("ValidationException", "Parameter name: can't be %.80q", name)
	}
	decrypt, err := p.flag("WithDecryption" + isFlag)
	if err != nil {
		return nil, err
	}
	found := s.find(name)
	if found == nil {
		return nil, bad("ParameterNotFound", "")
	}
	v, number := versionAt(found.versions, s.cloud.readTime(s.cloud.cfg.Now()))
	if number == 0 {
		return nil, bad("ParameterNotFound", "")
	}
	value := v.text
	if found.kind == "SecureString" && !decrypt {
		value = "AQICAHh" + v.token // stands for the ciphertext
	}
	return map[string]any{"Parameter": map[string]any{
		"ARN": found.arn, "Name": found.name, "Type": found.kind, "Value": value, "Version": number, "DataType": "text",
		"LastModifiedDate": float64(v.at.UnixMilli()) / 1000,
	}}, nil
}

func (s *Parameters) putParameter(p *params) (any, error) {
	name, value, kind := p.get("Name"), p.get("Value"), p.get("Type")
	overwrite, err := p.flag("Overwrite" + isFlag)
	if err != nil {
		return nil, err
	}
	switch lower := strings.ToLower(strings.TrimPrefix(name, "/")); {
	case !parameterName.MatchString(name) || strings.HasPrefix(lower, "aws") || strings.HasPrefix(lower, "ssm"):
		return nil, bad("ValidationException", "Parameter name: can't be prefixed with aws or ssm (case-insensitive), got %.80q", name)
	case value == "" || !utf8.ValidString(value):
		return nil, bad("ValidationException", "Value at 'value' failed to satisfy constraint: Member must have length of at least 1")
	case len(value) > maxParameter:
		return nil, bad("ValidationException", "Standard tier parameters support a maximum parameter value of %d characters.", maxParameter)
	case kind != "String" && kind != "SecureString":
		return nil, bad("ValidationException", "Value %.20q at 'type' failed to satisfy constraint", kind)
	}
	found := s.find(name)
	switch {
	case found == nil:
		found = &parameter{name: name, arn: s.arn(name), kind: kind}
		s.all = append(s.all, found)
	case !overwrite:
		return nil, bad("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option.")
	}
	found.kind = kind
	found.versions = append(found.versions, version{at: s.cloud.cfg.Now(), token: hexID(s.cloud.random), text: value, isText: true})
	return map[string]any{"Version": len(found.versions), "Tier": "Standard"}, nil
}
