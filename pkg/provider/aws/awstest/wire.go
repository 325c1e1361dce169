package awstest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
)

// Error is an error reply.
type Error struct {
	Code    string
	Message string
	Status  int
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message) }

// bad returns an error that is the client's fault.
func bad(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

// header is the begin of every reply of EC2. The root element is named by the reply's type.
type header struct {
	XMLNS     string `xml:"xmlns,attr"`
	RequestID string `xml:"requestId"`
}

func (h *header) fill(id string) {
	h.XMLNS, h.RequestID = "http://ec2.amazonaws.com/doc/"+versionEC2+"/", id
}

// write sends a reply or an error.
func (c *Cloud) write(w http.ResponseWriter, s service, reply any, failed error) error {
	id := c.requestID()
	status := http.StatusOK
	if failed != nil {
		e := &Error{Code: "InternalError", Message: failed.Error(), Status: http.StatusInternalServerError}
		_ = errors.As(failed, &e) // other errors stay internal ones
		status, reply = e.Status, s.refusal(e, id)
	} else if h, ok := reply.(interface{ fill(string) }); ok {
		h.fill(id)
	}
	body, err := s.encode(reply)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", s.contentType)
	w.Header().Set("X-Amzn-Requestid", id)
	w.WriteHeader(status)
	_, err = w.Write(body)
	return err
}

// encodeXML writes a reply of the query protocol.
func encodeXML(reply any) ([]byte, error) {
	body := bytes.NewBufferString(xml.Header)
	err := xml.NewEncoder(body).Encode(reply)
	return body.Bytes(), err
}

// hangUp closes the connection without a reply.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusBadGateway) // the closest equivalent on this connection
		return
	}
	_ = conn.Close() // intended
}

func (c *Cloud) requestID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b := c.random.Uint64(), c.random.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}
