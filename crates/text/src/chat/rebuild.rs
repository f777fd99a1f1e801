//! Puts the guards into a template's syntax tree: a copy of the tree in which every expression that makes a
//! new value is wrapped in one of the measuring filters of [`super::guard`]. Expressions that only pass
//! values on are left alone.

use minijinja::machinery::Span;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt};
use minijinja::{Error, ErrorKind, Value};

use super::guard::{CHECKED, CONCAT, MULTIPLY, STORED};

/// The same template with every new value measured.
///
/// # Errors
/// Tags that load other templates, of which there are none.
pub(super) fn rebuild<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
    Rebuild.stmt(stmt)
}

struct Rebuild;

fn filter<'a>(name: &'static str, expr: Option<Expr<'a>>, args: Vec<CallArg<'a>>, span: Span) -> Expr<'a> {
    Expr::Filter(Spanned::new(ast::Filter { name, expr, args }, span))
}

fn checked(expr: Expr<'_>) -> Expr<'_> {
    let span = expr.span();
    filter(CHECKED, Some(expr), Vec::new(), span)
}

impl Rebuild {
    fn body<'a>(&self, body: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Error> {
        body.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt<'a>(&self, stmt: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
        Ok(match stmt {
            Stmt::Template(s) => Stmt::Template(Spanned::new(
                ast::Template {
                    children: self.body(&s.children)?,
                },
                s.span(),
            )),
            Stmt::EmitExpr(s) => {
                // A call that is written out at once may be a recursion of the loop, which the compiler
                // recognizes by its form; its value is measured as it is written.
                let expr = match &s.expr {
                    Expr::Call(call) => Expr::Call(self.call(call)?),
                    expr => self.expr(expr)?,
                };
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr }, s.span()))
            }
            Stmt::EmitRaw(s) => {
                // As an expression, text counts like any other output.
                let constant = Expr::Const(Spanned::new(
                    ast::Const {
                        value: Value::from(s.raw),
                    },
                    s.span(),
                ));
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: constant }, s.span()))
            }
            Stmt::ForLoop(s) => Stmt::ForLoop(Spanned::new(
                ast::ForLoop {
                    target: self.target(&s.target)?,
                    iter: self.expr(&s.iter)?,
                    filter_expr: self.optional(s.filter_expr.as_ref())?,
                    recursive: s.recursive,
                    body: self.body(&s.body)?,
                    else_body: self.body(&s.else_body)?,
                },
                s.span(),
            )),
            Stmt::IfCond(s) => Stmt::IfCond(Spanned::new(
                ast::IfCond {
                    expr: self.expr(&s.expr)?,
                    true_body: self.body(&s.true_body)?,
                    false_body: self.body(&s.false_body)?,
                },
                s.span(),
            )),
            Stmt::WithBlock(s) => {
                let assignments = s
                    .assignments
                    .iter()
                    .map(|(target, expr)| Ok((self.target(target)?, self.expr(expr)?)))
                    .collect::<Result<_, Error>>()?;
                let block = ast::WithBlock {
                    assignments,
                    body: self.body(&s.body)?,
                };
                Stmt::WithBlock(Spanned::new(block, s.span()))
            }
            Stmt::Set(s) => {
                let expr = self.expr(&s.expr)?;
                let expr = match &s.target {
                    Expr::GetAttr(_) => filter(STORED, Some(expr), Vec::new(), s.span()),
                    _ => expr,
                };
                Stmt::Set(Spanned::new(
                    ast::Set {
                        target: self.target(&s.target)?,
                        expr,
                    },
                    s.span(),
                ))
            }
            Stmt::SetBlock(s) => {
                let filter = match &s.filter {
                    Some(filter) => self.expr(filter)?,
                    None => filter(CHECKED, None, Vec::new(), s.span()),
                };
                let block = ast::SetBlock {
                    target: self.target(&s.target)?,
                    filter: Some(filter),
                    body: self.body(&s.body)?,
                };
                Stmt::SetBlock(Spanned::new(block, s.span()))
            }
            Stmt::AutoEscape(s) => Stmt::AutoEscape(Spanned::new(
                ast::AutoEscape {
                    enabled: self.expr(&s.enabled)?,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::FilterBlock(s) => Stmt::FilterBlock(Spanned::new(
                ast::FilterBlock {
                    filter: self.expr(&s.filter)?,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::Block(s) => Stmt::Block(Spanned::new(
                ast::Block {
                    name: s.name,
                    required: s.required,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
                let message = "a chat template cannot load other templates";
                return Err(Error::new(ErrorKind::SyntaxError, message));
            }
            Stmt::Macro(s) => Stmt::Macro(self.macro_decl(s)?),
            Stmt::CallBlock(s) => Stmt::CallBlock(Spanned::new(
                ast::CallBlock {
                    call: self.call(&s.call)?,
                    macro_decl: self.macro_decl(&s.macro_decl)?,
                },
                s.span(),
            )),
            Stmt::Continue(s) => Stmt::Continue(Spanned::new(ast::Continue, s.span())),
            Stmt::Break(s) => Stmt::Break(Spanned::new(ast::Break, s.span())),
            Stmt::Do(s) => Stmt::Do(Spanned::new(
                ast::Do {
                    call: self.call(&s.call)?,
                },
                s.span(),
            )),
        })
    }

    fn macro_decl<'a>(&self, s: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, Error> {
        let decl = ast::Macro {
            name: s.name,
            args: s
                .args
                .iter()
                .map(|arg| self.target(arg))
                .collect::<Result<_, Error>>()?,
            defaults: self.exprs(&s.defaults)?,
            body: self.body(&s.body)?,
        };
        Ok(Spanned::new(decl, s.span()))
    }

    /// An expression that is assigned to, whose form the compiler wants as it is.
    fn target<'a>(&self, expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
        Ok(match expr {
            Expr::Var(s) => Expr::Var(Spanned::new(ast::Var { id: s.id }, s.span())),
            Expr::GetAttr(s) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.target(&s.expr)?,
                    name: s.name,
                },
                s.span(),
            )),
            Expr::List(s) => Expr::List(Spanned::new(
                ast::List {
                    items: self.targets(&s.items)?,
                },
                s.span(),
            )),
            Expr::Tuple(s) => Expr::Tuple(Spanned::new(
                ast::Tuple {
                    items: self.targets(&s.items)?,
                },
                s.span(),
            )),
            other => self.expr(other)?,
        })
    }

    fn targets<'a>(&self, items: &[Expr<'a>]) -> Result<Vec<Expr<'a>>, Error> {
        items.iter().map(|item| self.target(item)).collect()
    }

    fn exprs<'a>(&self, items: &[Expr<'a>]) -> Result<Vec<Expr<'a>>, Error> {
        items.iter().map(|item| self.expr(item)).collect()
    }

    fn optional<'a>(&self, expr: Option<&Expr<'a>>) -> Result<Option<Expr<'a>>, Error> {
        expr.map(|expr| self.expr(expr)).transpose()
    }

    fn args<'a>(&self, args: &[CallArg<'a>]) -> Result<Vec<CallArg<'a>>, Error> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    CallArg::Pos(expr) => CallArg::Pos(self.expr(expr)?),
                    CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, self.expr(expr)?),
                    CallArg::PosSplat(expr) => CallArg::PosSplat(self.expr(expr)?),
                    CallArg::KwargSplat(expr) => CallArg::KwargSplat(self.expr(expr)?),
                })
            })
            .collect()
    }

    fn call<'a>(&self, s: &Spanned<ast::Call<'a>>) -> Result<Spanned<ast::Call<'a>>, Error> {
        // The compiler tells calls of functions and methods by the form of what is called.
        let expr = match &s.expr {
            Expr::GetAttr(method) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.expr(&method.expr)?,
                    name: method.name,
                },
                method.span(),
            )),
            expr => self.expr(expr)?,
        };
        Ok(Spanned::new(
            ast::Call {
                expr,
                args: self.args(&s.args)?,
            },
            s.span(),
        ))
    }

    fn expr<'a>(&self, expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
        Ok(match expr {
            Expr::Var(s) => Expr::Var(Spanned::new(ast::Var { id: s.id }, s.span())),
            Expr::Const(s) => Expr::Const(Spanned::new(ast::Const { value: s.value.clone() }, s.span())),
            Expr::Slice(s) => checked(Expr::Slice(Spanned::new(
                ast::Slice {
                    expr: self.expr(&s.expr)?,
                    start: self.optional(s.start.as_ref())?,
                    stop: self.optional(s.stop.as_ref())?,
                    step: self.optional(s.step.as_ref())?,
                },
                s.span(),
            ))),
            Expr::UnaryOp(s) => {
                let op = if matches!(s.op, ast::UnaryOpKind::Not) {
                    ast::UnaryOpKind::Not
                } else {
                    ast::UnaryOpKind::Neg
                };
                Expr::UnaryOp(Spanned::new(
                    ast::UnaryOp {
                        op,
                        expr: self.expr(&s.expr)?,
                    },
                    s.span(),
                ))
            }
            Expr::BinOp(s) => {
                let (left, right) = (self.expr(&s.left)?, self.expr(&s.right)?);
                match s.op {
                    BinOpKind::Concat => filter(CONCAT, Some(left), vec![CallArg::Pos(right)], s.span()),
                    BinOpKind::Mul => filter(MULTIPLY, Some(left), vec![CallArg::Pos(right)], s.span()),
                    op => {
                        let made = Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, s.span()));
                        if matches!(op, BinOpKind::Add) {
                            checked(made)
                        } else {
                            made
                        }
                    }
                }
            }
            Expr::Compare(s) => {
                let ops = s
                    .ops
                    .iter()
                    .map(|op| {
                        Ok(ast::CompareOp {
                            op: op.op,
                            expr: self.expr(&op.expr)?,
                        })
                    })
                    .collect::<Result<_, Error>>()?;
                Expr::Compare(Spanned::new(
                    ast::Compare {
                        expr: self.expr(&s.expr)?,
                        ops,
                    },
                    s.span(),
                ))
            }
            Expr::IfExpr(s) => Expr::IfExpr(Spanned::new(
                ast::IfExpr {
                    test_expr: self.expr(&s.test_expr)?,
                    true_expr: self.expr(&s.true_expr)?,
                    false_expr: self.optional(s.false_expr.as_ref())?,
                },
                s.span(),
            )),
            Expr::Filter(s) => {
                // Without an expression the filter takes captured output, which is measured first.
                let inner = match &s.expr {
                    Some(expr) => self.expr(expr)?,
                    None => filter(CHECKED, None, Vec::new(), s.span()),
                };
                let made = ast::Filter {
                    name: s.name,
                    expr: Some(inner),
                    args: self.args(&s.args)?,
                };
                checked(Expr::Filter(Spanned::new(made, s.span())))
            }
            Expr::Test(s) => Expr::Test(Spanned::new(
                ast::Test {
                    name: s.name,
                    expr: self.expr(&s.expr)?,
                    args: self.args(&s.args)?,
                },
                s.span(),
            )),
            Expr::GetAttr(s) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.expr(&s.expr)?,
                    name: s.name,
                },
                s.span(),
            )),
            Expr::GetItem(s) => Expr::GetItem(Spanned::new(
                ast::GetItem {
                    expr: self.expr(&s.expr)?,
                    subscript_expr: self.expr(&s.subscript_expr)?,
                },
                s.span(),
            )),
            Expr::Call(s) => checked(Expr::Call(self.call(s)?)),
            Expr::List(s) => checked(Expr::List(Spanned::new(
                ast::List {
                    items: self.exprs(&s.items)?,
                },
                s.span(),
            ))),
            Expr::Tuple(s) => checked(Expr::Tuple(Spanned::new(
                ast::Tuple {
                    items: self.exprs(&s.items)?,
                },
                s.span(),
            ))),
            Expr::Map(s) => checked(Expr::Map(Spanned::new(
                ast::Map {
                    keys: self.exprs(&s.keys)?,
                    values: self.exprs(&s.values)?,
                },
                s.span(),
            ))),
        })
    }
}
