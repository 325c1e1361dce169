package awscall

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Query makes a call of the query protocol: version is that of the service's API. out
// is what the reply is read into, an element named {action}Response; nil: nothing in it
// matters. An error that is an Error was the service's answer; after any other one, and
// one for which Refused does not hold, what the call did is not known.
func (c *Client) Query(ctx context.Context, version, action string, params url.Values, out any, how Attempts) error {
	form := url.Values{"Action": {action}, "Version": {version}}
	for name, values := range params {
		form[name] = values
	}
	m := message{action, http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}}, []byte(form.Encode())}
	body, err := c.send(ctx, m, queryRefusal, how)
	if err != nil {
		return err
	}
	return readQuery(action, body, out)
}

// readQuery reads a reply that is the action's own. Any other document, such as a proxy's
// page, is no answer of the service's.
func readQuery(action string, body []byte, out any) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("%s: the reply is no XML: %w", action, err)
		}
		root, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if want := action + "Response"; root.Name.Local != want {
			return fmt.Errorf("%s: the reply is a <%.80s>, want a <%s>: perhaps it is not from the service", action, root.Name.Local, want)
		}
		if out == nil {
			out = &struct{}{}
		}
		if err := d.DecodeElement(out, &root); err != nil {
			return fmt.Errorf("%s: the reply is no XML: %w", action, err)
		}
		return nil
	}
}

// queryRefusal reads a refusal of the query protocol. One that is none has no code.
func queryRefusal(status int, body []byte) *Error {
	var r struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		Code    string   `xml:"Error>Code"`
		Message string   `xml:"Error>Message"`
	}
	if err := xml.Unmarshal(body, &r); err != nil {
		return refusal(status, "", "")
	}
	return refusal(status, r.Code, r.Message)
}

// refusal is an answer that is no success. One that says nothing is named by its status.
func refusal(status int, code, message string) *Error {
	if code == "" && message == "" {
		message = http.StatusText(status)
	}
	return &Error{Code: code, Message: message}
}

const jsonContent = "application/x-amz-json-1.1"

// JSON makes a call of JSON 1.1: target is what the service has before the action's
// name in the header. Errors are those of Query.
func (c *Client) JSON(ctx context.Context, target, action string, in, out any, how Attempts) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	header := http.Header{"Content-Type": {jsonContent}, "X-Amz-Target": {target + "." + action}}
	reply, err := c.send(ctx, message{action, header, body}, jsonRefusal, how)
	if err != nil {
		return err
	}
	return readJSON(action, reply, out)
}

// readJSON does not say what is wrong with a reply, which may hold a secret.
func readJSON(action string, body []byte, out any) error {
	if err := json.Unmarshal(body, out); err != nil {
		return errors.New(action + ": the reply is not the JSON that is expected")
	}
	return nil
}

// jsonRefusal reads a refusal of JSON 1.1. The code may stand in a namespace, and be
// followed by a URL.
func jsonRefusal(status int, body []byte) *Error {
	var r struct {
		Type    string `json:"__type"`
		Message string `json:"message"` // some say Message, which is read as well
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return refusal(status, "", "")
	}
	code := r.Type
	if _, after, ok := strings.Cut(code, "#"); ok {
		code = after
	}
	code, _, _ = strings.Cut(code, ":")
	return refusal(status, code, r.Message)
}
