package awstest

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxBody is the maximum size of a request, in bytes.
const maxBody = 1 << 20

// params are the parameters of a call, flattened: Filter.1.Value.2.
type params struct{ values map[string]string }

// readForm reads a call of the query protocol.
func readForm(s service, r *http.Request) (action string, p *params, err error) {
	body, err := readBody(r, "application/x-www-form-urlencoded", "MalformedQueryString")
	if err != nil {
		return "", nil, err
	}
	p, err = parseForm(s.version, body)
	if err != nil {
		return "", nil, err
	}
	return p.get("Action"), p, nil
}

// readBody reads the body of a request; code is that of the error if it is unreadable.
func readBody(r *http.Request, want, code string) (string, error) {
	if r.Method != http.MethodPost {
		return "", &Error{Code: "InvalidRequest", Status: http.StatusMethodNotAllowed, Message: "want POST, got " + r.Method}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != want {
		return "", bad(code, "content type %.80q: want %s", kind, want)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return "", bad(code, "the body ends early: %v", err)
	}
	if len(body) > maxBody {
		return "", &Error{Code: "RequestEntityTooLarge", Status: http.StatusRequestEntityTooLarge, Message: "the request is too large"}
	}
	return string(body), nil
}

// parseForm parses the body of a request. Duplicate parameters are refused.
func parseForm(version, body string) (*params, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, bad("MalformedQueryString", "%v", err)
	}
	p := &params{values: make(map[string]string, len(form))}
	for name, values := range form {
		if len(values) != 1 {
			return nil, bad("MalformedQueryString", "the parameter %.80s is there %d times", name, len(values))
		}
		p.values[name] = values[0]
	}
	if got := p.get("Version"); got != version {
		return nil, bad("NoSuchVersion", "version %.80q: want %s", got, version)
	}
	return p, nil
}

// get returns a parameter; empty if it is missing.
func (p *params) get(name string) string { return p.values[name] }

func (p *params) has(name string) bool {
	_, ok := p.values[name]
	return ok
}

// any reports whether there is a parameter with this name or below it.
func (p *params) any(name string) bool {
	for have := range p.values {
		if have == name || strings.HasPrefix(have, name+".") {
			return true
		}
	}
	return false
}

// count returns the length of a list. Its indexes begin at 1, without gaps.
func (p *params) count(list string) (int, error) {
	seen := map[int]bool{}
	for name := range p.values {
		rest, ok := strings.CutPrefix(name, list+".")
		if !ok {
			continue
		}
		index, _, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(index)
		if err != nil || n < 1 || strconv.Itoa(n) != index {
			return 0, bad("InvalidParameterValue", "%.80s is not an index of the list %s", index, list)
		}
		seen[n] = true
	}
	for n := range len(seen) {
		if !seen[n+1] {
			return 0, bad("MissingParameter", "The request must contain the parameter %s.%d", list, n+1)
		}
	}
	return len(seen), nil
}

// list returns a list of plain values.
func (p *params) list(name string) ([]string, error) {
	n, err := p.count(name)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, n)
	for i := range n {
		element := fmt.Sprintf("%s.%d", name, i+1)
		if !p.has(element) {
			return nil, bad("MissingParameter", "The request must contain the parameter %s", element)
		}
		out = append(out, p.get(element))
	}
	return out, nil
}

// number returns an integer; ok is false if the parameter is missing.
func (p *params) number(name string) (n int, ok bool, err error) {
	if !p.has(name) {
		return 0, false, nil
	}
	n, err = strconv.Atoi(p.get(name))
	if err != nil {
		return 0, true, bad("InvalidParameterValue", "Value (%.80s) for parameter %s is invalid. Expected a whole number.", p.get(name), name)
	}
	return n, true, nil
}

// flag returns a boolean; false if the parameter is missing.
func (p *params) flag(name string) (bool, error) {
	switch p.get(name) {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	default:
		return false, bad("InvalidParameterValue", "Value (%.80s) for parameter %s is invalid. Expected true or false.", p.get(name), name)
	}
}

// rejectUnknown returns an error if a parameter is not among the known ones.
func (p *params) rejectUnknown(known map[string]bool) error {
	var unknown []string
	for name := range p.values {
		if !known[parameterPattern(name)] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return bad("UnknownParameter", "The parameter %.200s is not recognized", slices.Min(unknown))
}

// parameterPattern returns a parameter's name with N for each index.
func parameterPattern(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if _, err := strconv.Atoi(part); err == nil {
			parts[i] = "N"
		}
	}
	return strings.Join(parts, ".")
}

// parameterSet returns the set of these names and of those that every action has.
func parameterSet(names []string) map[string]bool {
	set := map[string]bool{"Action": true, "Version": true} // JSON has both in headers
	for _, name := range names {
		set[name] = true
	}
	return set
}

// canonical returns the same string for two calls if and only if their parameters are equal.
func (p *params) canonical() string {
	form := url.Values{}
	for name, value := range p.values {
		form.Set(name, value)
	}
	return form.Encode() // sorted by name
}
