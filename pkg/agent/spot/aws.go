package spot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// aws is the EC2 instance metadata service, version 2: every request needs a token, which is
// created with a PUT so that no proxy can be tricked into requesting it.
type aws struct {
	*metadata
	endpoint string // empty: the default
	now      func() time.Time

	token   string
	tokenAt time.Time // when it was requested
}

// The protocol
// (docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
const (
	awsTokenPath  = "/latest/api/token"
	awsTTLHeader  = "X-aws-ec2-metadata-token-ttl-seconds"
	awsTTL        = "21600" // seconds, the maximum
	awsHeader     = "X-aws-ec2-metadata-token"
	awsLifecycle  = "/latest/meta-data/instance-life-cycle"
	awsActionPath = "/latest/meta-data/spot/instance-action"
	awsSource     = "aws-spot"

	// awsTokenUse is how long a token is used: half of its lifetime.
	awsTokenUse = 3 * time.Hour
	maxToken    = 1 << 10
)

func (a *aws) name() string { return "aws" }

func (a *aws) reclaimable(ctx context.Context) (bool, error) {
	got, err := a.get(ctx, awsLifecycle)
	switch {
	case err != nil:
		return false, err
	case got.code != http.StatusOK:
		return false, got.unexpected(awsLifecycle)
	case got.body == "spot":
		return true, nil
	case got.body == "on-demand", got.body == "scheduled", got.body == "capacity-block":
		return false, nil
	default:
		return false, fmt.Errorf("%w: life cycle %.40q: want spot or on-demand", errNotHere, got.body)
	}
}

func (a *aws) notice(ctx context.Context) (fleet.Notice, bool, error) {
	got, err := a.get(ctx, awsActionPath)
	switch {
	case err != nil:
		return fleet.Notice{}, false, err
	case got.code == http.StatusNotFound:
		return fleet.Notice{}, false, nil
	case got.code != http.StatusOK:
		return fleet.Notice{}, false, got.unexpected(awsActionPath)
	}
	n, err := ParseAction([]byte(got.body))
	return n, err == nil, err
}

// get makes a request with the current token, and with a new one if that is refused.
func (a *aws) get(ctx context.Context, path string) (answer, error) {
	age := a.now().Sub(a.tokenAt)
	fresh := a.token == "" || age < 0 || age >= awsTokenUse
	if fresh {
		if err := a.newToken(ctx); err != nil {
			return answer{}, err
		}
	}
	got, err := a.fetch(ctx, http.MethodGet, a.url(path), awsHeader, a.token)
	if err != nil || got.code != http.StatusUnauthorized {
		return got, err
	}
	if fresh {
		a.token = ""
		return got, nil
	}
	if err := a.newToken(ctx); err != nil {
		return answer{}, err
	}
	return a.fetch(ctx, http.MethodGet, a.url(path), awsHeader, a.token)
}

func (a *aws) newToken(ctx context.Context) error {
	a.token = ""
	asked := a.now()
	got, err := a.fetch(ctx, http.MethodPut, a.url(awsTokenPath), awsTTLHeader, awsTTL)
	switch {
	case err != nil:
		return err
	case got.code != http.StatusOK:
		return got.unexpected(awsTokenPath)
	case got.body == "" || len(got.body) > maxToken || strings.ContainsFunc(got.body, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%w: invalid token", errNotHere)
	}
	a.token, a.tokenAt = got.body, asked
	return nil
}

func (a *aws) url(path string) string {
	return strings.TrimRight(cmp.Or(a.endpoint, "http://"+linkLocal), "/") + path
}

// ParseAction parses a notice in instance-action: an object with action, which is terminate,
// stop or hibernate, and time. A missing or invalid time does not invalidate the notice.
func ParseAction(data []byte) (fleet.Notice, error) {
	if len(data) > maxAnswer {
		return fleet.Notice{}, fmt.Errorf("read the notice: %d bytes, want at most %d", len(data), maxAnswer)
	}
	var said struct {
		Action string `json:"action"`
		Time   any    `json:"time"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return fleet.Notice{}, errors.New("read the notice: not a JSON object with a string action")
	}
	switch said.Action {
	case "terminate", "stop", "hibernate":
	default:
		return fleet.Notice{}, fmt.Errorf("read the notice: action %.40q is not known: want terminate, stop or hibernate", said.Action)
	}
	n := fleet.Notice{Source: awsSource, Action: said.Action}
	text, _ := said.Time.(string)
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Year() >= 1970 && at.Year() <= 9999 {
		n.At = at.UTC()
	}
	return n, nil
}
