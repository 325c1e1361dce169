package awsfake

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"
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

// authorization is the header of Signature Version 4.
var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([A-Za-z0-9]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?` +
	`SignedHeaders=[a-z0-9;-]*host[a-z0-9;-]*, ?Signature=[0-9a-f]{64}$`)

// maxSkew is how far a caller's clock may be off.
const maxSkew = 5 * time.Minute

// authenticate checks what a signature is for. The signature itself needs the secret
// key, which this cloud does not have. The caller holds the lock.
func (c *Cloud) authenticate(s service, r *http.Request) error {
	text := r.Header.Get("Authorization")
	if text == "" {
		return &Error{Code: s.unsigned, Status: http.StatusForbidden, Message: "Request is missing Authentication Token"}
	}
	refused := func(format string, args ...any) error {
		return &Error{Code: s.denied, Status: s.deniedStatus,
			Message: "AWS was not able to validate the provided access credentials: " + fmt.Sprintf(format, args...)}
	}
	m := authorization.FindStringSubmatch(text)
	if m == nil {
		return refused("no Signature Version 4")
	}
	if m[3] != c.cfg.Region || m[4] != s.name {
		return refused("signed for %.40s in %.40s, want a service of %s", m[4], m[3], c.cfg.Region)
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || at.Format("20060102") != m[2] {
		return refused("the date and the signature's don't agree")
	}
	if skew := c.cfg.Now().Sub(at).Abs(); skew > maxSkew {
		return bad(s.expired, "Request has expired.")
	}
	return nil
}
