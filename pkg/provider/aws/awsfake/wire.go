package awsfake

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
)

// Error is a refusal.
type Error struct {
	Code    string
	Message string
	Status  int
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message) }

// bad is a refusal that the caller is to blame for.
func bad(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

// header is what every reply of EC2 begins with. The element is named by the reply's
// type.
type header struct {
	XMLNS     string `xml:"xmlns,attr"`
	RequestID string `xml:"requestId"`
}

func (h *header) fill(id string) {
	h.XMLNS, h.RequestID = "http://ec2.amazonaws.com/doc/"+versionEC2+"/", id
}

// write sends a reply, or a refusal.
func (c *Cloud) write(w http.ResponseWriter, s service, reply any, failed error) error {
	id := c.requestID()
	status := http.StatusOK
	if failed != nil {
		e := &Error{Code: "InternalError", Message: failed.Error(), Status: http.StatusInternalServerError}
		_ = errors.As(failed, &e) // else it stays an internal one
		status, reply = e.Status, s.refusal(e, id)
	} else if h, ok := reply.(interface{ fill(string) }); ok {
		h.fill(id)
	}
	body, err := s.encode(reply)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", s.content)
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

// hangUp ends the connection without a reply.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusBadGateway) // as close as this connection lets us come
		return
	}
	_ = conn.Close() // that is the point
}

func (c *Cloud) requestID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b := c.random.Uint64(), c.random.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}
