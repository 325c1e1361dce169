package awscall_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// service answers with one of its replies after the other, the last one for ever.
type service struct {
	replies []reply
	asked   []*http.Request
	bodies  []string
}

type reply struct {
	status int // 0: none comes
	body   string
}

func (s *service) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.asked, s.bodies = append(s.asked, r), append(s.bodies, string(body))
	next := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	if next.status == 0 {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: next.status, Body: io.NopCloser(strings.NewReader(next.body))}, nil
}

type keys struct{ err error }

func (k keys) Retrieve(context.Context) (sdk.Credentials, error) {
	return sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", SessionToken: "session"}, k.err
}

func client(s *service) *awscall.Client {
	return in(region, keys{}, s)
}

const region = "eu-central-1"

func in(region string, k sdk.CredentialsProvider, s awsclient.HTTPClient) *awscall.Client {
	c, err := awscall.New(session(region, k, s), awsclient.ParameterStore)
	if err != nil {
		panic(err) // the region is one
	}
	return c
}

func session(region string, k sdk.CredentialsProvider, s awsclient.HTTPClient) awsclient.Session {
	return awsclient.Session{Hosts: awsclient.Hosts{Region: region}, Credentials: k, HTTPClient: s}
}

func call(s *service, how awscall.Attempts) (out map[string]any, err error) {
	err = client(s).JSON(context.Background(), "AmazonSSM", "GetParameter", map[string]string{"Name": "/a"}, &out, how)
	return out, err
}

func TestRequests(t *testing.T) {
	s := &service{replies: []reply{{200, `{"a":"b"}`}, {200, `<XResponse><XResult><A>b</A></XResult></XResponse>`}}}
	out, err := call(s, awscall.Attempts{})
	if err != nil || out["a"] != "b" || s.bodies[0] != `{"Name":"/a"}` {
		t.Errorf("%v, %v; sent %s", out, err, s.bodies)
	}
	var got struct {
		A string `xml:"XResult>A"`
	}
	err = client(s).Query(t.Context(), "2011-01-01", "X", url.Values{"Name": {"a&b"}}, &got, awscall.Attempts{})
	if err != nil || got.A != "b" || s.bodies[1] != "Action=X&Name=a%26b&Version=2011-01-01" {
		t.Errorf("%+v, %v; sent %s", got, err, s.bodies[1])
	}
	for n, want := range []http.Header{
		{"Content-Type": {"application/x-amz-json-1.1"}, "X-Amz-Target": {"AmazonSSM.GetParameter"}, "X-Amz-Security-Token": {"session"}},
		{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}, "X-Amz-Security-Token": {"session"}},
	} {
		r := s.asked[n]
		for name := range want {
			if r.Header.Get(name) != want.Get(name) {
				t.Errorf("%s is %q, want %q", name, r.Header.Get(name), want.Get(name))
			}
		}
		if auth := r.Header.Get("Authorization"); !strings.Contains(auth, "/eu-central-1/ssm/aws4_request") {
			t.Errorf("signed as %s", auth)
		}
		if r.URL.String() != "https://ssm.eu-central-1.amazonaws.com/" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}
}

func TestPlaces(t *testing.T) {
	for region, want := range map[string]string{
		"cn-north-1": "https://ssm.cn-north-1.amazonaws.com.cn/", "us-gov-west-1": "https://ssm.us-gov-west-1.amazonaws.com/",
		"eusc-de-east-1": "https://ssm.eusc-de-east-1.amazonaws.eu/", "us-iso-east-1": "https://ssm.us-iso-east-1.c2s.ic.gov/",
	} {
		s := &service{replies: []reply{{200, `{}`}}}
		c := in(region, keys{}, s)
		if err := c.JSON(t.Context(), "AmazonSSM", "X", nil, &struct{}{}, awscall.Attempts{}); err != nil || s.asked[0].URL.String() != want {
			t.Errorf("%s: %v, %v", region, s.asked, err)
		}
	}
}

// TestNoPlace: a region of no known partition is never looked for in another one's hosts.
func TestNoPlace(t *testing.T) {
	_, err := awscall.New(session("moon-base-1", keys{}, &service{}), awsclient.AutoScaling)
	for _, says := range []string{`region "moon-base-1"`, "eu-central-1", "AWS_ENDPOINT_URL_AUTO_SCALING"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %s", err, says)
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
	t.Setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:2")
	for of, want := range map[awsclient.Service]string{
		awsclient.AutoScaling: "http://127.0.0.1:1/", awsclient.SecretsManager: "http://127.0.0.1:2/",
	} {
		s := &service{replies: []reply{{200, `{}`}}}
		c, err := awscall.New(session("r", keys{}, s), of)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.JSON(t.Context(), "X", "X", nil, &struct{}{}, awscall.Attempts{}); err != nil || s.asked[0].URL.String() != want {
			t.Errorf("%s: %v, %v", of, s.asked, err)
		}
	}
}

func TestAttempts(t *testing.T) {
	throttled := reply{400, `{"__type":"ThrottlingException"}`}
	for name, c := range map[string]struct {
		replies []reply
		once    bool
		calls   int
		waits   time.Duration
		ok      bool
	}{
		"at once":            {replies: []reply{{200, `{}`}}, calls: 1, ok: true},
		"no answer":          {replies: []reply{{}, {200, `{}`}}, calls: 2, waits: 200 * time.Millisecond, ok: true},
		"too many calls":     {replies: []reply{throttled, throttled, {200, `{}`}}, calls: 3, waits: 600 * time.Millisecond, ok: true},
		"never":              {replies: []reply{{503, "down"}}, calls: 4, waits: 1400 * time.Millisecond},
		"refused":            {replies: []reply{{400, `{"__type":"x.y#ParameterNotFound:http://"}`}, {200, `{}`}}, calls: 1},
		"changes, throttled": {replies: []reply{throttled, {200, `{}`}}, once: true, calls: 1},
		"changes, lost":      {replies: []reply{{}, {200, `{}`}}, once: true, calls: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, began := &service{replies: c.replies}, time.Now()
			_, err := call(s, awscall.Attempts{Once: c.once})
			if (err == nil) != c.ok || len(s.asked) != c.calls || time.Since(began) != c.waits {
				t.Errorf("%s: %v after %d calls and %s", name, err, len(s.asked), time.Since(began))
			}
			if name == "refused" && (!awscall.Coded(err, "x", "ParameterNotFound") || awscall.Coded(err, "x") || awscall.Throttled(err)) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestNoReply: an attempt ends though its caller would wait for ever, and what it did is
// not known.
func TestNoReply(t *testing.T) {
	for _, c := range []struct {
		late  int // attempts
		once  bool
		took  time.Duration
		fails bool
	}{
		{late: 1, took: 10200 * time.Millisecond},
		{late: 4, took: 41400 * time.Millisecond, fails: true},
		{late: 1, once: true, took: 10 * time.Second, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud := awsfake.New(awsfake.Config{Region: region})
			cloud.Parameters.Put("/a", "b")
			cloud.FailNext("GetParameter", c.late, awsfake.Fault{Delay: time.Hour})
			session, err := awsclienttest.Serve(t, cloud, region).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			client, err := awscall.New(session, awsclient.ParameterStore)
			if err != nil {
				t.Fatal(err)
			}
			began, in := time.Now(), map[string]any{"Name": "/a", "WithDecryption": true}
			err = client.JSON(t.Context(), "AmazonSSM", "GetParameter", in, &struct{}{}, awscall.Attempts{Once: c.once})
			if (err != nil) != c.fails || awscall.Refused(err) || time.Since(began) != c.took {
				t.Errorf("%+v: %v after %s", c, err, time.Since(began))
			}
		})
	}
}

// endless begins a reply, and never ends it.
type endless struct{}

func (e endless) Do(r *http.Request) (*http.Response, error) {
	body, far := io.Pipe()
	context.AfterFunc(r.Context(), func() { far.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
}

// TestHalfAReply: a reply that stops in the middle is given up as well.
func TestHalfAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := in(region, keys{}, endless{})
		began := time.Now()
		err := c.JSON(t.Context(), "AmazonSSM", "X", nil, &struct{}{}, awscall.Attempts{Once: true})
		if !errors.Is(err, context.DeadlineExceeded) || awscall.Refused(err) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// TestRefused: only what certainly had no effect is refused.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		reply   reply
		refused bool
	}{
		{reply{400, `{"__type":"X"}`}, true}, {reply{400, "?"}, false}, {reply{500, `{"__type":"X"}`}, false}, {reply{}, false},
		{reply{503, `{"__type":"SlowDown"}`}, true}, {reply{200, "?"}, false},
	} {
		_, err := call(&service{replies: []reply{c.reply}}, awscall.Attempts{Once: true})
		if err == nil || awscall.Refused(err) != c.refused {
			t.Errorf("%+v: %v is refused: %v", c.reply, err, awscall.Refused(err))
		}
	}
	for _, body := range []string{
		"<html><body>log in</body></html>", `<?xml version="1.0"?><Maintenance/>`, "<YResponse/>", "", "<XResponse>",
	} {
		err := client(&service{replies: []reply{{200, body}}}).Query(t.Context(), "1", "X", nil, nil, awscall.Attempts{Once: true})
		if err == nil || awscall.Refused(err) {
			t.Errorf("%s: %v, want that it is not known what came of it", body, err)
		}
	}
	s, none := &service{replies: []reply{{200, "{}"}}}, errors.New("no role")
	c := in(region, keys{none}, s)
	err := c.JSON(t.Context(), "AmazonSSM", "X", nil, &struct{}{}, awscall.Attempts{})
	if !errors.Is(err, none) || !awscall.Refused(err) || len(s.asked) != 0 {
		t.Errorf("without credentials: %v, %d calls", err, len(s.asked))
	}
}

// TestPermit: it is asked before each attempt, and its refusal is the answer.
func TestPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked, refusal := &service{replies: []reply{{}}}, 0, errors.New("not the leader")
		_, err := call(s, awscall.Attempts{Permit: func(context.Context) error {
			if asked++; asked > 2 {
				return refusal
			}
			return nil
		}})
		said, ok := awsclient.Refused(err)
		if !ok || said != refusal || !awscall.Refused(err) || asked != 3 || len(s.asked) != 2 { //nolint:errorlint // as it is, not wrapped
			t.Errorf("%v after asking %d times and %d calls", err, asked, len(s.asked))
		}
	})
}

func TestBadReplies(t *testing.T) {
	secret := "hunter2"
	_, err := call(&service{replies: []reply{{200, `{"Value":"` + secret}}}, awscall.Attempts{})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("half a reply: %v", err)
	}
	if _, err := call(&service{replies: []reply{{200, strings.Repeat(" ", 9<<20) + "{}"}}}, awscall.Attempts{Once: true}); err == nil {
		t.Error("a reply without end was read")
	}
	for body, want := range map[string]string{
		`<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>`: "X: AccessDenied (403): no",
		`<ErrorResponse><Errors/></ErrorResponse>`:                                                     "X: status 403: Forbidden",
		`<html>a proxy</html>`: "X: status 403: Forbidden",
	} {
		s := &service{replies: []reply{{403, body}}}
		if err := client(s).Query(t.Context(), "1", "X", nil, nil, awscall.Attempts{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// FuzzReplies: whatever is answered, an error tells the status, and nothing else happens.
func FuzzReplies(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"__type":"a#b:c","Message":"d"}`, `{"__type":1}`, "<ErrorResponse/>",
		"<ErrorResponse><Error><Code>a</Code></Error></ErrorResponse>",
		"<XResponse/>", "<", "null",
	} {
		f.Add(200, body)
		f.Add(400, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status <= 0 {
			t.Skip("no reply has this status")
		}
		once := awscall.Attempts{Once: true}
		_, asJSON := call(&service{replies: []reply{{status, body}}}, once)
		asQuery := client(&service{replies: []reply{{status, body}}}).Query(t.Context(), "1", "X", nil, nil, once)
		for _, err := range []error{asJSON, asQuery} {
			var e *awscall.Error
			if status != http.StatusOK && (!errors.As(err, &e) || e.Status != status) {
				t.Errorf("%d %q: %v", status, body, err)
			}
		}
	})
}
