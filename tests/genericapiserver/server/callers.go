package main

import (
	"context"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	adder "k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// admin is the token of a member of system:masters.
const admin = "admin"

// authenticate knows the bearer of `admin`, and takes another token for what a bound service account's token would be found to say:
// namespace/name, or namespace/name/pod/node.
func authenticate(_ context.Context, token string) (*authenticator.Response, bool, error) {
	if token == admin {
		return &authenticator.Response{User: &user.DefaultInfo{Name: admin, Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
	}
	said := strings.Split(token, "/")
	info := serviceaccount.ServiceAccountInfo{Namespace: said[0]}
	switch len(said) {
	case 4:
		info.PodName, info.PodUID, info.NodeName, info.NodeUID = said[2], "uid-of-"+said[2], said[3], "uid-of-"+said[3]
		fallthrough
	case 2:
		info.Name = said[1]
		return &authenticator.Response{User: info.UserInfo()}, true, nil
	default:
		return nil, false, nil
	}
}

func newAuthenticator() authenticator.Request {
	return adder.NewAuthenticatedGroupAdder(bearertoken.New(authenticator.TokenFunc(authenticate)))
}
