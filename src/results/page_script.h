/* SPDX-License-Identifier: Apache-2.0 */
/* results/page_script.h - private to the page: what follows the pointer. Without it a page has the same figures, as
 * titles of the marks. It has none of the characters that a reader of XML would take for a tag or an escape.
 */
#ifndef TM_RESULTS_PAGE_SCRIPT_H
#define TM_RESULTS_PAGE_SCRIPT_H

static const char page_script[] =
    "(function(){'use strict';\n"
    "var tip=document.createElement('div');tip.id='tip';tip.hidden=true;tip.setAttribute('role','status');\n"
    "document.body.appendChild(tip);\n"
    "function show(text,x,y){\n"
    " tip.textContent=text;tip.hidden=false;\n"
    " tip.style.left=Math.max(4,Math.min(x+14,innerWidth-tip.offsetWidth-8))+'px';\n"
    " tip.style.top=Math.max(4,Math.min(y+14,innerHeight-tip.offsetHeight-8))+'px';\n"
    "}\n"
    "function numbers(text){return text.trim().split(/\\s+/).map(Number)}\n"
    "function nearest(list,x){return list.reduce(function(best,value,i){\n"
    " return Math.sign(Math.abs(value-x)-Math.abs(list[best]-x))===-1?i:best},0)}\n"
    "function short(value){return String(Number(value.toPrecision(6)))}\n"
    "function title(node){var t=node.querySelector?node.querySelector(':scope title'):null;\n"
    " return t?node.tagName==='svg'?'':t.textContent:''}\n"
    "document.querySelectorAll('svg.chart').forEach(function(svg){\n"
    " var lines=[].map.call(svg.querySelectorAll('[data-y]'),function(line){return{name:title(line),\n"
    "  x:numbers(line.getAttribute('data-x')),y:numbers(line.getAttribute('data-y')),\n"
    "  at:line.getAttribute('points').split(' ').map(parseFloat)}});\n"
    " var guide=document.createElementNS(svg.namespaceURI,'line'),step=0;\n"
    " guide.setAttribute('class','leader');guide.setAttribute('y1',56);guide.setAttribute('y2',256);\n"
    " function tell(at,x,y){\n"
    "  guide.setAttribute('x1',at);guide.setAttribute('x2',at);svg.appendChild(guide);\n"
    "  var first=lines[0],text='step '+first.x[nearest(first.at,at)];\n"
    "  lines.forEach(function(line){text+='\\n'+line.name+': '+short(line.y[nearest(line.at,at)])});\n"
    "  show(text,x,y);\n"
    " }\n"
    " function hide(){tip.hidden=true;if(guide.parentNode)svg.removeChild(guide)}\n"
    " svg.addEventListener('pointermove',function(e){\n"
    "  var box=svg.getBoundingClientRect(),text=title(e.target);\n"
    "  if(lines.length){\n"
    "   if(/mark/.test(e.target.getAttribute('class'))?text:false)return show(text,e.clientX,e.clientY);\n"
    "   return tell(lines[0].at[nearest(lines[0].at,(e.clientX-box.left)*500/box.width)],e.clientX,e.clientY);\n"
    "  }\n"
    "  if(text)show(text,e.clientX,e.clientY);else hide();\n"
    " });\n"
    " svg.addEventListener('pointerleave',hide);svg.addEventListener('blur',hide);\n"
    " if(!lines.length)return;\n"
    " svg.setAttribute('tabindex',0);\n"
    " svg.addEventListener('keydown',function(e){\n"
    "  var by={ArrowLeft:-1,ArrowRight:1}[e.key],box=svg.getBoundingClientRect(),at=lines[0].at;\n"
    "  if(!by)return;\n"
    "  e.preventDefault();step=Math.max(0,Math.min(step+by,at.length-1));\n"
    "  tell(at[step],box.left+at[step]*box.width/500,box.top+60);\n"
    " });\n"
    "});})();\n";

#endif
