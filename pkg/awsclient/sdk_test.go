package awsclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const region = "eu-central-1"

// service answers with its replies one after the other, the last one repeatedly.
type service struct {
	replies []reply
	asked   []*http.Request
}

type reply struct {
	status int // 0: no reply
	body   string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	s.asked = append(s.asked, r)
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

// brief configures a client of a service that over answers.
func brief(t *testing.T, of awsclient.Service, k awsclient.CredentialsProvider, over http.RoundTripper) sdk.Config {
	t.Helper()
	session, err := awsclient.Config{Region: region, Credentials: k, HTTPClient: &http.Client{Transport: over}}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := session.Brief(of)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// read calls Parameter Store, which uses JSON, in one attempt or in several.
func read(t *testing.T, cfg sdk.Config, once bool) error {
	t.Helper()
	_, err := ssm.NewFromConfig(cfg).GetParameter(t.Context(), &ssm.GetParameterInput{Name: sdk.String("/a"), WithDecryption: sdk.Bool(true)},
		func(o *ssm.Options) {
			if once {
				awsclient.Once(&o.Retryer, &o.APIOptions, nil)
			}
		})
	return err
}

func answered(t *testing.T, once bool, replies ...reply) (*service, error) {
	t.Helper()
	s := &service{replies: replies}
	return s, read(t, brief(t, awsclient.ParameterStore, keys{}, s), once)
}

func TestAttempts(t *testing.T) {
	throttled, good := reply{400, `{"__type":"ThrottlingException"}`}, reply{200, `{}`}
	for name, c := range map[string]struct {
		replies []reply
		once    bool
		calls   int
		waits   time.Duration
		ok      bool
	}{
		"at once":            {replies: []reply{good}, calls: 1, ok: true},
		"no answer":          {replies: []reply{{}, good}, calls: 2, waits: 200 * time.Millisecond, ok: true},
		"too many calls":     {replies: []reply{throttled, throttled, good}, calls: 3, waits: 600 * time.Millisecond, ok: true},
		"never":              {replies: []reply{{503, "down"}}, calls: 4, waits: 1400 * time.Millisecond},
		"refused":            {replies: []reply{{400, `{"__type":"x.y#ParameterNotFound:http://"}`}, good}, calls: 1},
		"no JSON":            {replies: []reply{{200, "<html/>"}, good}, calls: 1},
		"changes, throttled": {replies: []reply{throttled, good}, once: true, calls: 1},
		"changes, lost":      {replies: []reply{{}, good}, once: true, calls: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s, err := answered(t, c.once, c.replies...)
			if (err == nil) != c.ok || len(s.asked) != c.calls || time.Since(began) != c.waits {
				t.Errorf("%s: %v after %d calls and %s", name, err, len(s.asked), time.Since(began))
			}
			if name == "refused" && (!awsclient.Coded(err, "x", "ParameterNotFound") || awsclient.Coded(err, "x") || awsclient.Throttled(err)) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestNoReply: an attempt ends even if its caller would wait forever, and its outcome is unknown.
func TestNoReply(t *testing.T) {
	for _, c := range []struct {
		late  int // number of attempts
		once  bool
		took  time.Duration
		fails bool
	}{
		{late: 1, took: 10200 * time.Millisecond},
		{late: 4, took: 41400 * time.Millisecond, fails: true},
		{late: 1, once: true, took: 10 * time.Second, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud := awstest.New(awstest.Config{Region: region})
			cloud.Parameters.Put("/a", "b")
			cloud.FailNext("GetParameter", c.late, awstest.Fault{Delay: time.Hour})
			session, err := awsclienttest.Serve(t, cloud, region).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := session.Brief(awsclient.ParameterStore)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = read(t, cfg, c.once)
			if (err != nil) != c.fails || awsclient.NoEffect(err) || time.Since(began) != c.took {
				t.Errorf("%+v: %v after %s", c, err, time.Since(began))
			}
		})
	}
}

// endless begins a reply, and never ends it.
type endless struct{}

func (e endless) RoundTrip(r *http.Request) (*http.Response, error) {
	body, far := io.Pipe()
	context.AfterFunc(r.Context(), func() { far.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
}

// TestHalfAReply: a reply that stalls half-way is abandoned too.
func TestHalfAReply(t *testing.T) {
	for once, want := range map[bool]time.Duration{true: 10 * time.Second, false: 41400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := read(t, brief(t, awsclient.ParameterStore, keys{}, endless{}), once)
			if !errors.Is(err, context.DeadlineExceeded) || awsclient.NoEffect(err) || time.Since(began) != want {
				t.Errorf("%v after %s, want %s", err, time.Since(began), want)
			}
		})
	}
}

// TestNoEffect: only errors that definitely had no effect are reported as such.
func TestNoEffect(t *testing.T) {
	for _, c := range []struct {
		reply reply
		none  bool
	}{
		{reply{400, `{"__type":"X"}`}, true}, {reply{400, "?"}, false}, {reply{400, "{}"}, false}, {reply{500, `{"__type":"X"}`}, false},
		{reply{}, false}, {reply{503, `{"__type":"SlowDown"}`}, true}, {reply{200, "?"}, false},
		{reply{200, `"` + strings.Repeat(" ", 8<<20) + `"`}, false},
	} {
		_, err := answered(t, true, c.reply)
		if err == nil || awsclient.NoEffect(err) != c.none {
			t.Errorf("%d %.40s: %v had no effect: %v", c.reply.status, c.reply.body, err, awsclient.NoEffect(err))
		}
	}
	s, none, denied := &service{replies: []reply{{200, "{}"}}}, errors.New("no role"), errors.New("not the leader")
	err := read(t, brief(t, awsclient.ParameterStore, keys{none}, s), true)
	if !errors.Is(err, none) || !awsclient.NoEffect(err) || len(s.asked) != 0 {
		t.Errorf("without credentials: %v, %d calls", err, len(s.asked))
	}
	_, err = ssm.NewFromConfig(brief(t, awsclient.ParameterStore, keys{}, s)).DeleteParameter(t.Context(),
		&ssm.DeleteParameterInput{Name: sdk.String("/a")},
		func(o *ssm.Options) {
			awsclient.Once(&o.Retryer, &o.APIOptions, func(context.Context) error { return denied })
		})
	if said, ok := awsclient.Refused(err); !ok || !errors.Is(said, denied) || !awsclient.NoEffect(err) || len(s.asked) != 0 {
		t.Errorf("without a permit: %v, %d calls", err, len(s.asked))
	}
}

// TestForeignPages: in the query protocol, a reply is a success only if it is the action's.
func TestForeignPages(t *testing.T) {
	for body, good := range map[string]bool{
		"<html><body>log in</body></html>": false, `<?xml version="1.0"?><Maintenance/>`: false, "<YResponse/>": false, "": false,
		"<SetInstanceHealthResponse>": false, "<SetInstanceHealthResponse/>": true,
	} {
		cfg := brief(t, awsclient.AutoScaling, keys{}, &service{replies: []reply{{200, body}}})
		_, err := autoscaling.NewFromConfig(cfg).SetInstanceHealth(t.Context(),
			&autoscaling.SetInstanceHealthInput{InstanceId: sdk.String("i-01234567"), HealthStatus: sdk.String("Healthy")})
		if (err == nil) != good || awsclient.NoEffect(err) {
			t.Errorf("%s: %v, want that it is not known what came of it", body, err)
		}
	}
}

// TestInWords: a refusal has the service's text, and an unintelligible reply is not shown.
func TestInWords(t *testing.T) {
	for _, c := range []struct {
		reply reply
		want  string
	}{
		{reply{400, `{"__type":"X","message":"no"}`}, "AWS refuses GetParameter: X: no"},
		{reply{200, "hunter2"}, "GetParameter: unexpected reply with HTTP status 200: it may not be from the service"},
		{reply{403, "{}"}, "GetParameter: unexpected reply with HTTP status 403: it may not be from the service"},
	} {
		_, err := answered(t, true, c.reply)
		if said := awsclient.InWords(err); said == nil || said.Error() != c.want || !errors.Is(said, err) {
			t.Errorf("%+v: %v, want %s", c.reply, said, c.want)
		}
	}
	if err := awsclient.InWords(nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
}
