package awsfake

import (
	"encoding/xml"
	"net/http"
)

// The versions of the APIs that this package speaks.
const (
	versionEC2     = "2016-11-15"
	versionELB     = "2015-12-01"
	versionScaling = "2011-01-01"
)

// service is one API of the cloud. All have one address, as no real ones have: a
// signature says which one a call is for.
type service struct {
	name    string // in what a signature is for
	version string // of the query protocol's API
	target  string // what JSON 1.1 puts before an action's name
	actions map[string]action
	content string // of replies

	read    func(s service, r *http.Request) (action string, p *params, err error)
	encode  func(reply any) ([]byte, error)
	refusal func(e *Error, id string) any

	// How it refuses what every service refuses.
	unknown      string // an action
	unsigned     string
	denied       string // a signature for something else
	deniedStatus int
	expired      string // a signature that is too old
	ended        string // keys that are
	forbidden    string // what no policy allows
	throttled    *Error

	forbiddenStatus int
}

// serviceOf returns the service that a call is signed for; EC2 answers what is not
// signed, or for something that is not there.
func serviceOf(r *http.Request) service {
	if m := authorization.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		for _, s := range services() {
			if s.name == m[4] {
				return s
			}
		}
	}
	return ec2()
}

func services() []service {
	return []service{
		ec2(),
		queryService("elasticloadbalancing", versionELB, balancing()),
		queryService("autoscaling", versionScaling, scaling()),
		jsonService("secretsmanager", "secretsmanager", keeping()),
		jsonService("ssm", "AmazonSSM", parameters()),
	}
}

func ec2() service {
	s := queryService("ec2", versionEC2, actions())
	s.denied, s.deniedStatus = "AuthFailure", http.StatusUnauthorized
	s.forbidden, s.ended = "UnauthorizedOperation", "RequestExpired"
	s.throttled = &Error{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable, Message: "Request limit exceeded."}
	s.refusal = func(e *Error, id string) any { return ec2Refusal{Code: e.Code, Message: e.Message, RequestID: id} }
	return s
}

// queryService is a service of the query protocol: parameters come as a form, and XML is
// answered.
func queryService(name, version string, actions map[string]action) service {
	return service{
		name: name, version: version, actions: actions, content: "text/xml;charset=UTF-8", read: readForm, encode: encodeXML,
		unknown: "InvalidAction", unsigned: "MissingAuthenticationToken", denied: "SignatureDoesNotMatch",
		deniedStatus: http.StatusForbidden, expired: "RequestExpired", ended: "ExpiredToken",
		forbidden: "AccessDenied", forbiddenStatus: http.StatusForbidden,
		throttled: bad("Throttling", "Rate exceeded"),
		refusal: func(e *Error, id string) any {
			return queryRefusal{Type: blame(e), Code: e.Code, Message: e.Message, RequestID: id}
		},
	}
}

func blame(e *Error) string {
	if e.Status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

// ec2Refusal is the body of a refusal of EC2, which has its own.
type ec2Refusal struct {
	XMLName   struct{} `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// queryRefusal is the body of a refusal of the query protocol.
type queryRefusal struct {
	XMLName   struct{} `xml:"ErrorResponse"`
	Type      string   `xml:"Error>Type"`
	Code      string   `xml:"Error>Code"`
	Message   string   `xml:"Error>Message"`
	RequestID string   `xml:"RequestId"`
}

// queryReply is the reply of a service of the query protocol other than EC2. Its
// result has the name of its own type.
type queryReply struct {
	XMLName   xml.Name
	XMLNS     string `xml:"xmlns,attr"`
	Result    any
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

func (r *queryReply) fill(id string) { r.RequestID = id }

// result is a result that says nothing.
type result struct{ XMLName xml.Name }

// done is the reply to an action that has nothing to tell.
func done(action, version, host string) *queryReply {
	return replyOf(action, version, host, result{xml.Name{Local: action + "Result"}})
}

func replyOf(action, version, host string, result any) *queryReply {
	return &queryReply{
		XMLName: xml.Name{Local: action + "Response"}, XMLNS: "http://" + host + ".amazonaws.com/doc/" + version + "/", Result: result,
	}
}
