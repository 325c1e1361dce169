package awstest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

const jsonContent = "application/x-amz-json-1.1"

// jsonService returns a service of JSON 1.1, whose requests name the action in a header.
func jsonService(name, target string, actions map[string]action) service {
	return service{
		name: name, target: target, actions: actions, contentType: jsonContent, read: readJSON, encode: json.Marshal,
		unknown: "UnknownOperationException", unsigned: "MissingAuthenticationTokenException", signatureCode: "InvalidSignatureException",
		signatureStatus: http.StatusBadRequest, expired: "InvalidSignatureException", expiredToken: "ExpiredTokenException",
		unauthorized: "AccessDeniedException", unauthorizedStatus: http.StatusBadRequest,
		throttled: bad("ThrottlingException", "Rate exceeded"),
		refusal: func(e *Error, _ string) any {
			return map[string]string{"__type": e.Code, "message": e.Message}
		},
	}
}

const malformed = "SerializationException"

// readJSON reads a call of JSON 1.1.
func readJSON(s service, r *http.Request) (action string, p *params, err error) {
	action, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), s.target+".")
	if !ok {
		return "", nil, bad(s.unknown, "X-Amz-Target is %.80q: want %s.Action", r.Header.Get("X-Amz-Target"), s.target)
	}
	body, err := readBody(r, jsonContent, malformed)
	if err != nil {
		return "", nil, err
	}
	p, err = parseJSON(body)
	return action, p, err
}

// parseJSON reads the members of an object as parameters. Numbers and booleans get a suffix to
// their name, so that a value of the wrong type is an unknown parameter.
func parseJSON(body string) (*params, error) {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var members map[string]any
	if err := d.Decode(&members); err != nil || members == nil {
		return nil, bad(malformed, "the body is no JSON object: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad(malformed, "something follows the JSON object")
	}
	p := &params{values: map[string]string{}}
	for name, value := range members {
		if err := p.flatten(name, value); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// The suffixes of parameters that are not strings.
const (
	isFlag   = "?"
	isNumber = "#"
)

func (p *params) flatten(name string, value any) error {
	switch v := value.(type) {
	case nil: // as if it were missing
	case string:
		p.values[name] = v
	case bool:
		p.values[name+isFlag] = strconv.FormatBool(v)
	case json.Number:
		p.values[name+isNumber] = v.String()
	default:
		return bad(malformed, "%.80s: this cloud reads no lists and objects", name)
	}
	return nil
}
