package awstest

import (
	"encoding/xml"
	"net/http"

	"github.com/nstance/nstance/pkg/sigv4"
)

// The versions of the APIs.
const (
	versionEC2     = "2016-11-15"
	versionELB     = "2015-12-01"
	versionScaling = "2011-01-01"
)

// service is one API of the cloud. All share one address, unlike the real ones: the signature of a
// request names its service.
type service struct {
	name        string // as signatures name it
	version     string // of the query protocol's API
	target      string // the prefix of an action's name in JSON 1.1
	actions     map[string]action
	contentType string // of replies

	read    func(s service, r *http.Request) (action string, p *params, err error)
	encode  func(reply any) ([]byte, error)
	refusal func(e *Error, id string) any

	// The codes of refusals that every service has in its own words.
	unknown         string // for an unknown action
	unsigned        string
	signatureCode   string // for a wrong signature
	signatureStatus int
	expired         string // for a signature that is too old
	expiredToken    string // for credentials that have expired
	unauthorized    string // for a call that no policy allows
	throttled       *Error

	unauthorizedStatus int
}

// serviceOf returns the service that a request is signed for; EC2 if it is unsigned, or signed for
// an unknown service.
func serviceOf(r *http.Request) service {
	signed, _ := sigv4.Parse(r) // the service itself reports the error
	for _, s := range services() {
		if s.name == signed.Service {
			return s
		}
	}
	return ec2()
}

func services() []service {
	return []service{
		ec2(),
		queryService("elasticloadbalancing", versionELB, balancingActions()),
		queryService("autoscaling", versionScaling, scalingActions()),
		jsonService("secretsmanager", "secretsmanager", secretActions()),
		jsonService("ssm", "AmazonSSM", parameterActions()),
	}
}

func ec2() service {
	s := queryService("ec2", versionEC2, ec2Actions())
	s.signatureCode, s.signatureStatus = "AuthFailure", http.StatusUnauthorized
	s.unauthorized, s.expiredToken = "UnauthorizedOperation", "RequestExpired"
	s.throttled = &Error{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable, Message: "Request limit exceeded."}
	s.refusal = func(e *Error, id string) any { return ec2Refusal{Code: e.Code, Message: e.Message, RequestID: id} }
	return s
}

// queryService returns a service of the query protocol: a form as the request, XML as the reply.
func queryService(name, version string, actions map[string]action) service {
	return service{
		name: name, version: version, actions: actions, contentType: "text/xml;charset=UTF-8", read: readForm, encode: encodeXML,
		unknown: "InvalidAction", unsigned: "MissingAuthenticationToken", signatureCode: "SignatureDoesNotMatch",
		signatureStatus: http.StatusForbidden, expired: "RequestExpired", expiredToken: "ExpiredToken",
		unauthorized: "AccessDenied", unauthorizedStatus: http.StatusForbidden,
		throttled: bad("Throttling", "Rate exceeded"),
		refusal: func(e *Error, id string) any {
			return queryRefusal{Type: errorType(e), Code: e.Code, Message: e.Message, RequestID: id}
		},
	}
}

func errorType(e *Error) string {
	if e.Status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

// ec2Refusal is the body of an error of EC2, which has its own form.
type ec2Refusal struct {
	XMLName   struct{} `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// queryRefusal is the body of an error of the query protocol.
type queryRefusal struct {
	XMLName   struct{} `xml:"ErrorResponse"`
	Type      string   `xml:"Error>Type"`
	Code      string   `xml:"Error>Code"`
	Message   string   `xml:"Error>Message"`
	RequestID string   `xml:"RequestId"`
}

// queryReply is a reply of the query protocol, but for EC2. The element of its result is named by
// the result's type.
type queryReply struct {
	XMLName   xml.Name
	XMLNS     string `xml:"xmlns,attr"`
	Result    any
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

func (r *queryReply) fill(id string) { r.RequestID = id }

// emptyResult is a result without content.
type emptyResult struct{ XMLName xml.Name }

// emptyReply returns the reply to an action that returns nothing.
func emptyReply(action, version, host string) *queryReply {
	return newReply(action, version, host, emptyResult{xml.Name{Local: action + "Result"}})
}

func newReply(action, version, host string, result any) *queryReply {
	return &queryReply{
		XMLName: xml.Name{Local: action + "Response"}, XMLNS: "http://" + host + ".amazonaws.com/doc/" + version + "/", Result: result,
	}
}
