package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/secrets"
)

// This file is Parameter Store, of Systems Manager:
// https://docs.aws.amazon.com/systems-manager/latest/APIReference/

// A parameter is 4 KiB of text: the value in base64, a space, and the token of the write. A
// parameter stored by hand may lack the token.
const (
	maxText      = 4 << 10
	tokenLength  = 32
	maxParameter = (maxText - 1 - tokenLength) / 4 * 3 // bytes of a value
)

// store calls Parameter Store through functions (pkg/awsclient/sdk.go). The service has no
// tokens: a write whose response was lost is recognised by the token in the text.
type store struct {
	get storeCall[ssm.GetParameterInput, ssm.GetParameterOutput]
	set storeCall[ssm.PutParameterInput, ssm.PutParameterOutput]
}

type storeCall[In, Out any] func(context.Context, *In, ...func(*ssm.Options)) (*Out, error)

var _ backend = store{}

func newStore(s awsclient.Session) (store, error) {
	cfg, err := s.Brief(awsclient.ParameterStore)
	client := ssm.NewFromConfig(cfg)
	return store{client.GetParameter, client.PutParameter}, err
}

// read returns a parameter's text. It takes a name or an ARN.
func (s store) read(ctx context.Context, name string) (string, error) {
	out, err := s.get(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: sdk.Bool(true)})
	if awsclient.Coded(err, "ParameterNotFound", "ParameterVersionNotFound") {
		return "", errAbsent
	}
	text := ""
	if err == nil && out.Parameter != nil {
		text = sdk.ToString(out.Parameter.Value)
	}
	return text, replied("GetParameter", text != "", err)
}

func (s store) value(ctx context.Context, name string) ([]byte, error) {
	text, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

func encode(value []byte, token string) string {
	return base64.StdEncoding.EncodeToString(value) + " " + token
}

// decode's error does not contain the text, which may be the secret.
func decode(text string) ([]byte, error) {
	encoded, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	value, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameter is not base64: store the value in base64", secrets.ErrSealed)
	}
	return value, nil
}

func (s store) put(ctx context.Context, name, text string, overwrite bool) error {
	in := ssm.PutParameterInput{Name: &name, Value: &text, Type: types.ParameterTypeSecureString, Overwrite: &overwrite}
	out, err := s.set(ctx, &in, func(o *ssm.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, nil) })
	return replied("PutParameter", out != nil && out.Version > 0, err)
}

// create checks, after an attempt with a lost response, whether the existing parameter has
// this token. Reads lag: if none is found, the outcome remains unknown.
func (s store) create(ctx context.Context, name, token string, value []byte, doubt bool) (bool, error) {
	text := encode(value, token)
	err := s.put(ctx, name, text, false)
	switch {
	case err == nil:
		return true, nil
	case !awsclient.Coded(err, "ParameterAlreadyExists"):
		return false, err
	case !doubt:
		return false, nil
	}
	there, err := s.read(ctx, name)
	return err == nil && there == text, err
}

// replace overwrites any value. A repeated attempt may overwrite another write in between,
// which the service can't prevent.
func (s store) replace(ctx context.Context, name, token string, value []byte) error {
	return s.put(ctx, name, encode(value, token), true)
}
