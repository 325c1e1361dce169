package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
)

const (
	// secretKey is the Secret's key in which Cluster API looks for the kubeconfig.
	secretKey = "value"
	// skew is the tolerated lead of the API server's clock over ours, for a token from before
	// the operator's start.
	skew = time.Minute
)

// issue is the last token issued since the operator started.
type issue struct {
	token string
	at    time.Time
}

// kubeconfig maintains the Secret with the kubeconfig, unless an administrator does, and
// returns when to requeue.
func (r *Reconciler) kubeconfig(ctx context.Context, s *state) (time.Duration, error) {
	if r.Endpoint != "" {
		return 0, nil
	}
	to, err := wayTo(r.Config)
	if err != nil {
		return 0, err
	}
	now := r.Now()
	if token := held(s.secret); token != "" && r.unchanged(s.secret, to, token) {
		if wait := r.issued.lasts(token, now); wait > 0 {
			return wait, nil
		}
	}
	token, err := r.token(ctx)
	if err != nil {
		return 0, err
	}
	r.issued = issue{token: token, at: now}
	wait := r.issued.lasts(token, now)
	if wait <= 0 {
		return 0, fmt.Errorf("the new token of ServiceAccount %s has no usable lifetime", r.ServiceAccount)
	}
	return wait, r.write(ctx, to, token)
}

// unchanged reports whether rewriting the Secret with its present token would change nothing.
func (r *Reconciler) unchanged(s *corev1.Secret, to clientcmdapi.Cluster, token string) bool {
	want, err := render(r.Name, to, token)
	return err == nil && bytes.Equal(s.Data[secretKey], want) && s.Labels[clusterv1.ClusterNameLabel] == r.Name
}

func (r *Reconciler) token(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.ServiceAccount}}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(r.Lifetime / time.Second))},
	}
	if err := r.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("get a token of ServiceAccount %s: %w", r.ServiceAccount, err)
	}
	return request.Status.Token, nil
}

func (r *Reconciler) write(ctx context.Context, to clientcmdapi.Cluster, token string) error {
	data, err := render(r.Name, to, token)
	if err != nil {
		return err
	}
	secret := corev1ac.Secret(capi.KubeconfigName(r.Name), r.Namespace).
		WithLabels(map[string]string{clusterv1.ClusterNameLabel: r.Name}).
		WithType(clusterv1.ClusterSecretType).
		WithData(map[string][]byte{secretKey: data})
	if err := r.Client.Apply(ctx, secret, capi.FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Secret %s: %w", *secret.Name, err)
	}
	return nil
}

// lasts returns how long a token may stay in use: two thirds of its lifetime. For a token that
// we requested, our own clock since then counts, so skew does not matter; an older token that
// is not valid yet by our clock is not trusted.
func (i issue) lasts(token string, now time.Time) time.Duration {
	from, to, err := times(token)
	if err != nil {
		return 0
	}
	use := to.Sub(from) / 3 * 2
	switch {
	case token == i.token:
		return use - now.Sub(i.at)
	case now.Before(from.Add(-skew)):
		return 0
	}
	return from.Add(use).Sub(now)
}

// times returns from when and until when a token is valid. It does not verify the signature.
func times(token string) (from, to time.Time, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return from, to, errors.New("the token is not a JWT")
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return from, to, fmt.Errorf("the token's claims: %w", err)
	}
	var claims struct {
		From int64 `json:"iat"`
		To   int64 `json:"exp"`
	}
	if err := json.Unmarshal(body, &claims); err != nil {
		return from, to, fmt.Errorf("the token's claims: %w", err)
	}
	if claims.From <= 0 || claims.To <= claims.From {
		return from, to, fmt.Errorf("the token's claims: it is valid from %d to %d", claims.From, claims.To)
	}
	return time.Unix(claims.From, 0), time.Unix(claims.To, 0), nil
}

// held returns the token in the Secret; empty if there is none.
func held(s *corev1.Secret) string {
	if s == nil {
		return ""
	}
	config, err := clientcmd.Load(s.Data[secretKey])
	if err != nil {
		return ""
	}
	if at := config.Contexts[config.CurrentContext]; at != nil && config.AuthInfos[at.AuthInfo] != nil {
		return config.AuthInfos[at.AuthInfo].Token
	}
	return ""
}

// wayTo returns the cluster part of a kubeconfig: the API server's address and CA.
func wayTo(config *rest.Config) (clientcmdapi.Cluster, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return clientcmdapi.Cluster{}, fmt.Errorf("the API server's address %q: %w", config.Host, err)
	}
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return clientcmdapi.Cluster{}, fmt.Errorf("the API server's CA: %w", err)
		}
	}
	return clientcmdapi.Cluster{
		Server: server.String(), CertificateAuthorityData: ca, InsecureSkipTLSVerify: config.Insecure, TLSServerName: config.ServerName,
	}, nil
}

func render(name string, to clientcmdapi.Cluster, token string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &to
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
